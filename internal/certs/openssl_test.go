// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/x509"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// openssl runs the openssl command, an independent implementation of the same RFCs, and returns
// its output.
func openssl(t *testing.T, args ...string) (string, error) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("it is compared with openssl where that belongs to the system")
	}
	path, err := exec.LookPath("openssl")
	if err != nil {
		t.Fatal("openssl is not installed; scripts/needs.sh test installs it")
	}
	out, err := exec.CommandContext(t.Context(), path, args...).CombinedOutput()
	return string(out), err
}

// opensslVerify verifies cert strictly according to RFC 5280, as a client (sslserver) or a
// server (sslclient) does.
func opensslVerify(t *testing.T, caFile string, cert KeyPair, purpose string, more ...string) (string, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cert.pem")
	if err := os.WriteFile(path, cert.CertPEM, 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"verify", "-x509_strict", "-attime", strconv.FormatInt(epoch.Unix(), 10), "-purpose", purpose,
		"-CAfile", caFile}
	return openssl(t, append(append(args, more...), path)...)
}

// TestOpenSSLAgrees: openssl accepts each key pair of each set for its purpose and names, and
// for nothing else.
func TestOpenSSLAgrees(t *testing.T) {
	for _, kind := range []KeyType{ECDSAP256, ECDSAP384, RSA3072} {
		dir := t.TempDir()
		opts := allSets(dir)
		opts.KeyType, opts.IPs = kind, []string{"10.0.0.10", "fd00::1"}
		if kind == RSA3072 { // RSA keys take long to generate
			opts.With, opts.KonnectivityAgentServerNames = []string{}, nil
		}
		for _, item := range mustInit(t, opts).Items {
			if item.Certificate.CA {
				continue
			}
			pair, err := ReadKeyPair(item.Path)
			if err != nil {
				t.Fatal(err)
			}
			bundle := filepath.Join(item.Path, BundleFile)
			right, wrong := "sslserver", "sslclient"
			if pair.Certificate.ExtKeyUsage[0] == x509.ExtKeyUsageClientAuth {
				right, wrong = wrong, right
			}
			checks := [][]string{nil}
			for _, name := range pair.Certificate.DNSNames {
				checks = append(checks, []string{"-verify_hostname", name})
			}
			for _, ip := range pair.Certificate.IPAddresses {
				checks = append(checks, []string{"-verify_ip", ip.String()})
			}
			for _, check := range checks {
				if out, err := opensslVerify(t, bundle, *pair, right, check...); err != nil {
					t.Errorf("%s %s as %s %q: %v\n%s", kind, item.Name, right, check, err, out)
				}
			}
			for _, check := range [][]string{{"-purpose", wrong}, {"-verify_hostname", "evil.example.com"},
				{"-verify_ip", "192.0.2.1"}} {
				if out, err := opensslVerify(t, bundle, *pair, right, check...); err == nil {
					t.Errorf("%s %s is accepted with %q:\n%s", kind, item.Name, check, out)
				}
			}
		}
	}
}

// TestOpenSSLEnforcesCALimits: openssl too rejects certificates that a thief of a CA's key
// signs outside the limits in the CA certificate.
func TestOpenSSLEnforcesCALimits(t *testing.T) {
	dir := t.TempDir()
	mustInit(t, allSets(dir))
	server, client := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	for name, tc := range map[string]struct {
		ca       string
		template x509.Certificate
		purpose  string
		want     string // "" if openssl accepts it
	}{
		"right": {ServingCADir, x509.Certificate{DNSNames: []string{"widgets.demo.svc"},
			ExtKeyUsage: server}, "sslserver", ""},
		"client of serving CA": {ServingCADir, x509.Certificate{ExtKeyUsage: client}, "sslclient",
			"unsuitable certificate purpose"},
		"server of client CA": {FrontProxyCADir, x509.Certificate{DNSNames: []string{"widgets.demo.svc"},
			ExtKeyUsage: server}, "sslserver", "unsuitable certificate purpose"},
		"name not permitted": {ServingCADir, x509.Certificate{DNSNames: []string{"kubernetes.default.svc"},
			ExtKeyUsage: server}, "sslserver", "permitted subtree violation"},
		"address excluded": {ServingCADir, x509.Certificate{DNSNames: []string{"widgets.demo.svc"},
			IPAddresses: []net.IP{net.IPv4(10, 0, 0, 1)},
			ExtKeyUsage: server}, "sslserver", "excluded subtree violation"},
		"IPv6 address excluded": {ServingCADir, x509.Certificate{IPAddresses: []net.IP{net.ParseIP("fd00::1")},
			ExtKeyUsage: server}, "sslserver", "excluded subtree violation"},
		"agent's CA, server": {KonnectivityAgentCADir, x509.Certificate{DNSNames: []string{"a.example.com"},
			ExtKeyUsage: server}, "sslserver", ""},
		"agent's CA, client": {KonnectivityAgentCADir, x509.Certificate{ExtKeyUsage: client}, "sslclient", ""},
	} {
		t.Run(name, func(t *testing.T) {
			ca, err := ReadKeyPair(filepath.Join(dir, tc.ca))
			if err != nil {
				t.Fatal(err)
			}
			// -x509_strict requires full compliance with RFC 5280; the tested property must be
			// the only violation.
			tc.template.KeyUsage, tc.template.BasicConstraintsValid,
				tc.template.SubjectKeyId = x509.KeyUsageDigitalSignature, true, []byte{1, 2, 3}
			tc.template.Subject.CommonName = "forged"
			out, err := opensslVerify(t, filepath.Join(dir, tc.ca, CertFile), forge(t, *ca, &tc.template), tc.purpose)
			if (err == nil) != (tc.want == "") || !strings.Contains(out, tc.want) {
				t.Errorf("got %v, want %q in:\n%s", err, tc.want, out)
			}
		})
	}
}

// TestOpenSSLSignsARequest: a CA that is operated with openssl can sign our request unmodified,
// and Accept accepts the certificate.
func TestOpenSSLSignsARequest(t *testing.T) {
	dir := t.TempDir()
	opts := InitOptions{Dir: dir, Service: widgets, IPs: []string{"10.0.0.10"}}
	csr := mustRequest(t, opts, ServingDir).Path
	ca, key, cert := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "ca.key"), filepath.Join(dir, "cert.crt")
	for _, args := range [][]string{
		{"req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key, "-out", ca,
			"-days", "365", "-subj", "/CN=openssl",
			"-addext", "keyUsage=critical,keyCertSign,cRLSign"},
		{"x509", "-req", "-in", csr, "-CA", ca, "-CAkey", key, "-CAcreateserial", "-days", "90", "-copy_extensions",
			"copyall", "-out", cert},
	} {
		if out, err := openssl(t, args...); err != nil {
			t.Fatalf("openssl %s: %v\n%s", args[0], err, out)
		}
	}
	if _, err := Accept(t.Context(), AcceptOptions{Dir: dir, Name: ServingDir, CertFile: cert,
		CAFile: ca}); err != nil {
		t.Fatal(err)
	}
	opts.With = []string{}
	for _, item := range mustInit(t, opts).Items {
		if item.Action != Kept {
			t.Errorf("%s: got %s: %s, want it unchanged", item.Name, item.Action, item.Reason)
		}
	}
}
