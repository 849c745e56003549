// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// writeRequest creates a request with crypto/x509 only, as other tools do.
func writeRequest(t *testing.T, template *x509.CertificateRequest) string {
	t.Helper()
	key, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "tls.csr")
	if err := os.WriteFile(path, encodeRequest(&x509.CertificateRequest{Raw: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func signOptions(t *testing.T, request, ca string) SignOptions {
	t.Helper()
	return SignOptions{RequestFile: request, CA: ca, Out: filepath.Join(t.TempDir(), "tls.crt"), Now: at(epoch)}
}

// TestSignRequestWithoutNames: a request without names and usages gets exactly what the options
// grant.
func TestSignRequestWithoutNames(t *testing.T) {
	from := elsewhere(t)
	for name, tc := range map[string]struct {
		ca    string
		grant func(*SignOptions)
		want  string
	}{
		"server": {ServingCADir, func(o *SignOptions) { o.DNSNames = []string{"widgets.demo.svc"} },
			"CN=widgets.demo.svc [widgets.demo.svc] [] [serverAuth]"},
		"address": {KonnectivityAgentCADir, func(o *SignOptions) { o.IPs = []string{"10.0.0.9"} },
			"CN=10.0.0.9 [] [10.0.0.9] [serverAuth]"},
		"client": {FrontProxyCADir, func(o *SignOptions) { o.User, o.Groups = "jane", []string{"dev"} },
			"CN=jane,O=dev [] [] [clientAuth]"},
	} {
		t.Run(name, func(t *testing.T) {
			opts := signOptions(t, writeRequest(t, &x509.CertificateRequest{}), filepath.Join(from, tc.ca))
			tc.grant(&opts)
			report, err := SignRequest(opts)
			if err != nil {
				t.Fatal(err)
			}
			cert, err := ReadCertificateFile(opts.Out)
			if err != nil {
				t.Fatal(err)
			}
			got := strings.Join([]string{cert.Subject.String(), sprint(cert.DNSNames),
				sprint(toStrings(cert.IPAddresses)), sprint(extKeyUsageNames(cert.ExtKeyUsage, nil))}, " ")
			if got != tc.want || report.Items[0].Certificate.SHA256 != Fingerprint(cert) || cert.IsCA {
				t.Errorf("got %s and the report %+v, want %s", got, report.Items[0], tc.want)
			}
		})
	}
}

// TestSignRejectsExcess: SignRequest reports each requested property that is not granted and
// writes nothing.
func TestSignRejectsExcess(t *testing.T) {
	from := elsewhere(t)
	key, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	greedy := filepath.Join(t.TempDir(), "greedy.csr")
	if err := os.WriteFile(greedy, encodeRequest(greedyRequest(t, key)), 0o600); err != nil {
		t.Fatal(err)
	}
	server := func(o *SignOptions) { o.DNSNames = []string{"widgets.demo.svc", "widgets"} }
	client := func(o *SignOptions) { o.User = "jane" }
	for name, tc := range map[string]struct {
		request string
		grant   func(*SignOptions)
		want    []string
	}{
		"all there is": {greedy, server, []string{
			`the common name "evil"`, `the group (O) "system:masters"`, `the DNS name "kubernetes.default.svc"`,
			`the email address "a@b.example"`,
			`the URI "spiffe://evil"`, `the subject attribute "2.5.4.6"`, `the extended key usage "1.3.6.1.5.5.7.3.2"`,
			`CA:TRUE,`, `the key usages of a CA`, `the extension "1.2.3.4"`,
		}},
		"more names": {writeRequest(t, &x509.CertificateRequest{DNSNames: []string{"widgets", "gadgets"},
			IPAddresses: []net.IP{net.IPv4(10, 0, 0, 1)}}), server,
			[]string{`the DNS name "gadgets"`, `the IP address "10.0.0.1"`}},
		"another user": {writeRequest(t, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "admin",
			Organization: []string{"ops"}}}), client,
			[]string{`the common name "admin"`, `the group (O) "ops"`}},
		"a name of its own": {writeRequest(t, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "widgets"},
			DNSNames: []string{"widgets"}}), server, nil},
	} {
		t.Run(name, func(t *testing.T) {
			opts := signOptions(t, tc.request, filepath.Join(from, ServingCADir))
			if tc.grant(&opts); opts.User != "" {
				opts.CA = filepath.Join(from, FrontProxyCADir)
			}
			_, err := SignRequest(opts)
			for _, want := range tc.want {
				wantError(t, err, "the request contains "+want)
			}
			if len(Flatten(err)) != len(tc.want) {
				t.Errorf("got %q, want %d refusals", Flatten(err), len(tc.want))
			}
			if _, statErr := os.Stat(opts.Out); (statErr == nil) != (err == nil) {
				t.Errorf("the certificate: %v, after %v", statErr, err)
			}
		})
	}
}

func TestSignOptions(t *testing.T) {
	from := elsewhere(t)
	weak, err := rsa.GenerateKey(rand.Reader, 1024) //nolint:gosec // what is to be refused
	if err != nil {
		t.Fatal(err)
	}
	weakRequest, err := newRequest(leafSpec("widgets.demo.svc"), weak)
	if err != nil {
		t.Fatal(err)
	}
	forged, err := newRequest(leafSpec("widgets.demo.svc"), weak)
	if err != nil {
		t.Fatal(err)
	}
	forged.Raw[len(forged.Raw)-1] ^= 1
	file := func(data []byte) string {
		path := filepath.Join(t.TempDir(), "tls.csr")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := writeRequest(t, &x509.CertificateRequest{})
	for name, tc := range map[string]struct {
		change func(*SignOptions)
		want   string
	}{
		"nothing granted": {func(o *SignOptions) { o.DNSNames = nil },
			"expected either --dns and --ip, for a server, or --user and --group"},
		"both kinds":  {func(o *SignOptions) { o.User = "jane" }, "a certificate is not for both"},
		"group alone": {func(o *SignOptions) { o.DNSNames, o.Groups = nil, []string{"dev"} }, `user ""`},
		"masters": {func(o *SignOptions) {
			o.DNSNames, o.User, o.Groups = nil, "a",
				[]string{"system:masters"}
		}, "--allow-system-masters"},
		"port":      {func(o *SignOptions) { o.DNSNames = []string{"widgets.demo.svc:443"} }, "remove the port"},
		"long life": {func(o *SignOptions) { o.Lifetime = 400 * day }, "--allow-long-lived"},
		"no CA":     {func(o *SignOptions) { o.CA = "" }, "expected the CA: a directory"},
		"no file":   {func(o *SignOptions) { o.Out = "" }, "expected a file for the certificate"},
		"excluded name": {func(o *SignOptions) { o.DNSNames = []string{"gadgets.demo.svc"} },
			"expected a name that the CA permits"},
		"CA for clients": {func(o *SignOptions) { o.CA = filepath.Join(from, FrontProxyCADir) },
			"expected a CA for [serverAuth]"},
		"a leaf as CA": {func(o *SignOptions) { o.CA = filepath.Join(from, ServingDir) },
			"expected a CA certificate"},
		"CA gone":    {func(o *SignOptions) { o.CA = "nowhere" }, "expected a CA: read key pair"},
		"CA expired": {func(o *SignOptions) { o.Now = at(epoch.Add(CALifetime + day)) }, "expired at"},
		"request gone": {func(o *SignOptions) { o.RequestFile = "nowhere" },
			"expected a certificate request: " + notFound},
		"no request": {func(o *SignOptions) { o.RequestFile = filepath.Join(from, ServingDir, CertFile) },
			"expected one PEM block CERTIFICATE REQUEST"},
		"two requests": {func(o *SignOptions) {
			o.RequestFile = file(append(encodeRequest(weakRequest), encodeRequest(weakRequest)...))
		}, "expected one PEM block"},
		"weak key": {func(o *SignOptions) { o.RequestFile = file(encodeRequest(weakRequest)) },
			"found RSA 1024"},
		"no proof of key": {func(o *SignOptions) { o.RequestFile = file(encodeRequest(forged)) },
			"expected a signature by the key in the request"},
		"something in way": {func(o *SignOptions) { o.Out = filepath.Join(from, ServingDir, KeyFile) },
			"expected no file, found one with other content"},
	} {
		t.Run(name, func(t *testing.T) {
			opts := signOptions(t, good, filepath.Join(from, ServingCADir))
			opts.DNSNames = []string{"widgets.demo.svc"}
			tc.change(&opts)
			before := contents(t, from)
			_, err := SignRequest(opts)
			wantError(t, err, tc.want)
			if diff := cmp.Diff(before, contents(t, from)); diff != "" {
				t.Errorf("files changed:\n%s", diff)
			}
			_, refused := errors.AsType[*RefusedError](err)
			_, invalid := errors.AsType[*InvalidError](err)
			if !refused && !invalid && !strings.Contains(tc.want, "expected a CA for") {
				t.Errorf("got %T, want *RefusedError or *InvalidError", err)
			}
		})
	}
}

func TestCreateFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "new", "file")
	for range 2 { // an identical file is not a conflict
		if err := CreateFile(path, File{[]byte("one"), keyMode}); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := CreateFile(path, File{[]byte("one"), keyMode}); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().String() != modeText(keyMode) {
		t.Errorf("got mode %v, %v; want it narrowed to 0600", info.Mode(), err)
	}
	before := contents(t, dir)
	wantError(t, CreateFile(path, File{[]byte("two"), keyMode}), "found one with other content")
	wantError(t, CreateFile(dir, File{[]byte("two"), keyMode}), "found one that cannot be read")
	below := "cannot be read"
	if runtime.GOOS == "windows" { // Windows reports the path as not found
		below = "expected a directory, found a file"
	}
	wantError(t, CreateFile(filepath.Join(path, "below"), File{nil, keyMode}), below)
	if diff := cmp.Diff(before, contents(t, dir)); diff != "" || len(before) != 1 {
		t.Errorf("files changed, or something is left over:\n%s", diff)
	}
}
