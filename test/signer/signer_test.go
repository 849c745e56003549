// SPDX-License-Identifier: Apache-2.0

package signer

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"example.com/extension-apiserver/internal/certs"
)

var service = certs.Service{Name: "widgets", Namespace: "demo"}

// buildCFSSL builds the server in the version of the library that certgen uses.
func buildCFSSL(t *testing.T) string {
	t.Helper()
	const module = "github.com/cloudflare/cfssl"
	version, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Version}}", module).Output()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "go", "install", module+"/cmd/cfssl@"+strings.TrimSpace(string(version)))
	cmd.Dir = dir // outside of this module
	cmd.Env = append(os.Environ(), "GOBIN="+dir, "CGO_ENABLED=0", "GOFLAGS=-trimpath")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build cfssl: %v\n%s", err, out)
	}
	return filepath.Join(dir, "cfssl")
}

// rig is a cfssl server with a CA, and what asks it.
type rig struct {
	*testing.T
	ca     *certs.CA
	signer certs.RemoteSigner
}

func newCA(t *testing.T, name string, usage x509.ExtKeyUsage, names ...string) *certs.CA {
	t.Helper()
	ca, err := certs.NewCA(certs.CAOptions{Name: name, Usage: usage, PermittedDNS: names})
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func (r *rig) write(dir, name string, data []byte) string {
	r.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		r.Fatal(err)
	}
	return path
}

// start runs the server: over TLS, for clients named certgen alone, and for names of the Service alone.
func start(t *testing.T, cfssl string) *rig {
	t.Helper()
	r := &rig{T: t, ca: newCA(t, "widgets-serving-ca", x509.ExtKeyUsageServerAuth, service.DNSNames()...)}
	dir := t.TempDir()
	transport, clients := newCA(t, "signer-ca", x509.ExtKeyUsageServerAuth), newCA(t, "signer-clients", x509.ExtKeyUsageClientAuth)
	server, err := transport.IssueServing(certs.ServingOptions{IPs: []string{"127.0.0.1"}})
	if err != nil {
		t.Fatal(err)
	}
	profile := func(expiry string, usages ...string) map[string]any {
		return map[string]any{"expiry": expiry, "usages": usages, "name_whitelist": `^widgets(\.demo(\.svc(\.cluster\.local)?)?)?$`}
	}
	config, err := json.Marshal(map[string]any{"signing": map[string]any{
		"default": profile("2160h", "digital signature", "server auth"),
		"profiles": map[string]any{
			"both": profile("2160h", "digital signature", "server auth", "client auth"), "long": profile("87600h", "digital signature", "server auth"),
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), cfssl, "serve", "-address=127.0.0.1", fmt.Sprintf("-port=%d", port), "-loglevel=2",
		"-ca="+r.write(dir, "ca.pem", r.ca.CertPEM), "-ca-key="+r.write(dir, "ca-key.pem", r.ca.KeyPEM), "-config="+r.write(dir, "config.json", config),
		"-tls-cert="+r.write(dir, "tls.pem", server.CertPEM), "-tls-key="+r.write(dir, "tls-key.pem", server.KeyPEM),
		"-mutual-tls-ca="+r.write(dir, "clients.pem", clients.CertPEM), "-mutual-tls-cn=^certgen$", "-disable=scan,info,gencrl,newcert,newkey,init_ca,bundle,certinfo,/")
	var log strings.Builder
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("cfssl:\n%s", &log)
		}
	})
	r.signer = certs.RemoteSigner{URL: fmt.Sprintf("https://127.0.0.1:%d", port), CAs: certs.Bundle{transport.Certificate}, Client: r.client(clients, "certgen")}
	dial := &tls.Config{RootCAs: r.signer.CAs.Pool(), MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{r.signer.Client}}
	if err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 30*time.Second, true, func(context.Context) (bool, error) {
		conn, err := tls.Dial("tcp", strings.TrimPrefix(r.signer.URL, "https://"), dial)
		if err == nil {
			err = conn.Close()
		}
		return err == nil, nil
	}); err != nil {
		t.Fatalf("cfssl does not answer: %v", err)
	}
	return r
}

func (r *rig) client(ca *certs.CA, name string) tls.Certificate {
	r.Helper()
	pair, err := ca.IssueClient(certs.ClientOptions{User: name})
	if err != nil {
		r.Fatal(err)
	}
	out, err := tls.X509KeyPair(pair.CertPEM, pair.KeyPEM)
	if err != nil {
		r.Fatal(err)
	}
	return out
}

// init has certgen make the serving pair in memory, as certgen renew does, with the CA's certificate and without its key.
func (r *rig) init(signer certs.RemoteSigner, change func(*certs.InitOptions)) (*certs.Memory, error) {
	store := &certs.Memory{}
	if err := store.Write(certs.ServingCADir, certs.Files{certs.CertFile: {Data: r.ca.CertPEM, Mode: 0o600}}); err != nil {
		r.Fatal(err)
	}
	opts := certs.InitOptions{Store: store, Service: service, With: []string{}, Signer: &signer}
	if change != nil {
		change(&opts)
	}
	_, err := certs.Init(r.Context(), opts)
	return store, err
}

func TestRemoteSigner(t *testing.T) {
	r := start(t, buildCFSSL(t))
	store, err := r.init(r.signer, nil)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := certs.ReadPair(store, certs.ServingDir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pair.Certificate.Verify(x509.VerifyOptions{Roots: (certs.Bundle{r.ca.Certificate}).Pool(), DNSName: service.ServerName()}); err != nil {
		t.Errorf("the certificate: %v", err)
	}
	for set, files := range store.Sets {
		if _, ok := files[certs.KeyFile]; ok && set != certs.ServingDir {
			t.Errorf("%s holds a key", set)
		}
	}
	// What is right is kept, and then the signer is not asked.
	gone := r.signer
	gone.URL = "https://127.0.0.1:1"
	if report, err := certs.Init(t.Context(), certs.InitOptions{Store: store, Service: service, With: []string{}, Signer: &gone}); err != nil || report.Items[1].Action != certs.Kept {
		t.Errorf("again: %+v, %v; want it kept", report, err)
	}
	for name, tc := range map[string]struct {
		signer func(*certs.RemoteSigner)
		change func(*certs.InitOptions)
		want   string
	}{
		"not there":           {func(s *certs.RemoteSigner) { s.URL = gone.URL }, nil, "connection refused"},
		"another server":      {func(s *certs.RemoteSigner) { s.CAs = certs.Bundle{r.ca.Certificate} }, nil, "certificate signed by unknown authority"},
		"a stranger":          {func(s *certs.RemoteSigner) { s.Client = r.client(newCA(t, "x", x509.ExtKeyUsageClientAuth), "certgen") }, nil, "have https://127.0.0.1:"},
		"both usages":         {func(s *certs.RemoteSigner) { s.Profile = "both" }, nil, "extended key usages: expected [serverAuth], found [serverAuth clientAuth]"},
		"ten years":           {func(s *certs.RemoteSigner) { s.Profile = "long" }, nil, "at most 398 days"},
		"a name that is not":  {nil, func(o *certs.InitOptions) { o.DNSNames = []string{"evil.example.com"} }, "found name constraints"},
		"plain text":          {func(s *certs.RemoteSigner) { s.URL = strings.Replace(s.URL, "https", "http", 1) }, nil, "expected a URL such as https://"},
		"a group of servers":  {func(s *certs.RemoteSigner) { s.URL += ",evil:8888" }, nil, "expected a URL such as https://"},
		"without certificate": {func(s *certs.RemoteSigner) { s.Client = tls.Certificate{} }, nil, "signer-cert"},
		"the key is here too": {nil, func(o *certs.InitOptions) {
			if err := o.Store.Write(certs.ServingCADir, r.ca.Files(nil)); err != nil {
				t.Fatal(err)
			}
		}, "and no key"},
		"no CA": {nil, func(o *certs.InitOptions) { o.Store = &certs.Memory{}; o.AllowNewCA = true }, "expected the certificate of the CA whose key"},
		"expired, and a new one allowed": {nil, func(o *certs.InitOptions) {
			o.AllowNewCA, o.Now = true, func() time.Time { return time.Now().Add(certs.CALifetime + time.Hour) }
		}, "it expired at"},
	} {
		t.Run(name, func(t *testing.T) {
			signer := r.signer
			if tc.signer != nil {
				tc.signer(&signer)
			}
			store, err := r.init(signer, tc.change)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want an error with %q", err, tc.want)
			}
			if _, ok := store.Sets[certs.ServingDir]; ok {
				t.Error("something was written")
			}
		})
	}
	// The server refuses by itself what the CA's name constraints would stop too.
	wide := newCA(t, "wide", x509.ExtKeyUsageServerAuth)
	ca, err := certs.RemoteCA(wide.Certificate, &r.signer, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ca.IssueServing(certs.ServingOptions{DNSNames: []string{"evil.example.com"}}); err == nil {
		t.Error("the server signed a name that is not in its list")
	}
	// And a server with another CA than the one that is trusted is found out.
	if _, err := ca.IssueServing(certs.ServingOptions{DNSNames: service.DNSNames()}); err == nil || !strings.Contains(err.Error(), "signature: ") {
		t.Errorf("another CA's signature: got %v, want it refused", err)
	}
}
