// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bufio"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/pkg/conformance"
	"example.com/extension-apiserver/pkg/envtest"
)

// TestSecurity runs the security checks against the sample's server and k8s.io/sample-apiserver.
func TestSecurity(t *testing.T) {
	e := envtest.New(t, envtest.Options{})
	other, err := e.StartSampleAPIServer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	config, err := e.AdminConfig()
	if err != nil {
		t.Fatal(err)
	}
	for resource, server := range map[string]*envtest.Server{"widgets.v1.workshop.example.com": e.Servers[0],
		"flunders.v1alpha1.wardle.example.com": other} {
		t.Run(resource, func(t *testing.T) {
			target := one(t, config, resource)
			own := server.Config(e)
			ca, err := os.ReadFile(own.CAFile)
			if err != nil {
				t.Fatal(err)
			}
			user := pair(t, e, "client-ca", "somebody")
			target.Direct = &conformance.Direct{
				URL: server.URL, ServerName: own.ServerName, CA: ca,
				FrontProxy: pair(t, e, certs.FrontProxyCADir, certs.FrontProxyUser), User: &user,
			}
			report, err := conformance.ExecuteSecurity(t.Context(), target)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%.0f s: %d passed, %d failed, %d skipped", report.Seconds, report.Count("", conformance.Passed),
				report.Count("", conformance.Failed), report.Count("", conformance.Skipped))
			asExpected(t, report, resource, expectations(t, "expected-security.yaml"))
		})
	}
}

// sloppy starts a server that accepts everything: any client certificate, any TLS version, any
// request head. It always responds with answer, which is a complete HTTP response.
func sloppy(t *testing.T, response string) *conformance.Direct {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"sloppy"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment | x509.KeyUsageCertSign, IsCA: true,
		BasicConstraintsValid: true,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	var suites []uint16
	for _, suite := range append(tls.CipherSuites(), tls.InsecureCipherSuites()...) {
		suites = append(suites, suite.ID)
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{ //nolint:gosec // insecure settings are its purpose
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, MinVersion: tls.VersionTLS10,
		CipherSuites: suites, ClientAuth: tls.RequestClientCert,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				for lines := bufio.NewReader(conn); ; {
					line, err := lines.ReadString('\n')
					if err != nil {
						return
					}
					if line == "\r\n" {
						if _, err := io.WriteString(conn, response); err != nil {
							return
						}
					}
				}
			}()
		}
	}()
	return &conformance.Direct{
		URL: "https://" + listener.Addr().String(), ServerName: "sloppy",
		CA: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
	}
}

// TestEachSecurityCheckFails checks that a server that trusts every caller fails all checks but
// two. A server that trusts no caller fails one of them, and a server that upgrades every
// connection fails the other.
func TestEachSecurityCheckFails(t *testing.T) {
	e := envtest.New(t, envtest.Options{})
	config, err := e.AdminConfig()
	if err != nil {
		t.Fatal(err)
	}
	target := one(t, config, "widgets.v1.workshop.example.com")
	target.CheckTimeout = 3 * time.Second
	// This kube-apiserver forwards the identity headers of its clients.
	target.Config = rest.CopyConfig(config)
	target.Config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return faulty{fault{instead: func(req *http.Request, _ http.RoundTripper) *http.Response {
			if req.Header.Get("X-Remote-User") == "" {
				return nil
			}
			return respond(req, 200, []byte("{}"))
		}}, next}
	})
	user := pair(t, e, "client-ca", "somebody")
	const tokensTaken, foreignOrigin = "tokens/accepted", "transport/foreign-origin"
	for name, tc := range map[string]struct {
		response string
		only     []string
		fails    func(id string) bool
	}{
		"trusts every client": {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nLocation: //evil.example.com\r\n\r\n{}",
			nil, func(id string) bool { return id != tokensTaken && id != foreignOrigin }},
		"upgrades every request": {"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " +
			"websocket\r\n\r\n", []string{foreignOrigin}, func(string) bool { return true }},
		"trusts no client": {"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n", []string{tokensTaken},
			func(string) bool { return true }},
	} {
		t.Run(name, func(t *testing.T) {
			target := target
			target.Only = tc.only
			target.Direct = sloppy(t, tc.response)
			target.Direct.FrontProxy, target.Direct.User = pair(t, e, certs.FrontProxyCADir, certs.FrontProxyUser),
				&user
			report, err := conformance.ExecuteSecurity(t.Context(), target)
			if err != nil {
				t.Fatal(err)
			}
			for _, result := range report.Results {
				if want := tc.fails(result.ID); want != (result.Outcome == conformance.Failed) {
					t.Errorf("%s %s, want that it fails: %t: %s", result.ID, result.Outcome, want,
						strings.Join(result.Messages, "; "))
				}
			}
		})
	}
}

// pair returns a new client certificate issued by a CA of the environment.
func pair(t *testing.T, e *envtest.Environment, ca, user string) tls.Certificate {
	t.Helper()
	issued := issue(t, e, ca, user)
	out, err := tls.X509KeyPair(issued.CertPEM, issued.KeyPEM)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func issue(t *testing.T, e *envtest.Environment, ca, user string) *certs.KeyPair {
	t.Helper()
	dir := filepath.Join(e.PKI(), ca)
	cert, err := os.ReadFile(filepath.Join(dir, certs.CertFile))
	if err != nil {
		t.Fatal(err)
	}
	key, err := os.ReadFile(filepath.Join(dir, certs.KeyFile))
	if err != nil {
		t.Fatal(err)
	}
	authority, err := certs.ParseCA(cert, key, nil)
	if err != nil {
		t.Fatal(err)
	}
	issued, err := authority.IssueClient(certs.ClientOptions{User: user})
	if err != nil {
		t.Fatal(err)
	}
	return issued
}
