// SPDX-License-Identifier: Apache-2.0

// Package signer runs a real cfssl server that has the key of a CA, and tests certgen with it.
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

// build builds the server in the version of the library that certgen uses.
func build(t *testing.T) string {
	t.Helper()
	const module = "github.com/cloudflare/cfssl"
	version, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Version}}", module).Output()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "go", "install", module+"/cmd/cfssl@"+strings.TrimSpace(string(version)))
	cmd.Dir = dir // outside this module
	cmd.Env = append(os.Environ(), "GOBIN="+dir, "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build cfssl: %v\n%s", err, out)
	}
	return filepath.Join(dir, "cfssl")
}

// Server is a cfssl server that has the key of a CA for the names of a Service.
type Server struct {
	*testing.T
	CA     *certs.CA
	Signer certs.RemoteSigner // how to reach it
	Flags  []string           // the same as flags of certgen
	CAFile string             // CA's certificate
}

func newCA(t *testing.T, name string, usage x509.ExtKeyUsage, names ...string) *certs.CA {
	t.Helper()
	ca, err := certs.NewCA(certs.CAOptions{Name: name, Usage: usage, PermittedDNS: names})
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func (r *Server) write(dir, name string, data []byte) string {
	r.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		r.Fatal(err)
	}
	return path
}

// Host is where the server runs.
type Host struct {
	Start func(*exec.Cmd) error
	Dial  func(ctx context.Context, network, address string) (net.Conn, error)
}

// Start runs the server until the test ends. It uses TLS, accepts only clients named certgen, and
// signs only names of the Service.
func Start(t *testing.T, host Host, service certs.Service) *Server {
	t.Helper()
	cfssl := build(t)
	r := &Server{T: t, CA: newCA(t, service.Name+"-serving-ca", x509.ExtKeyUsageServerAuth, service.DNSNames()...)}
	dir := t.TempDir()
	transport, clients := newCA(t, "signer-ca", x509.ExtKeyUsageServerAuth),
		newCA(t, "signer-clients", x509.ExtKeyUsageClientAuth)
	server, err := transport.IssueServing(certs.ServingOptions{IPs: []string{"127.0.0.1"}})
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
	r.CAFile = r.write(dir, "ca.pem", r.CA.CertPEM)
	cmd := exec.CommandContext(t.Context(), cfssl, "serve", "-address=127.0.0.1", fmt.Sprintf("-port=%d", port),
		"-loglevel=2",
		"-ca="+r.CAFile, "-ca-key="+r.write(dir, "ca-key.pem", r.CA.KeyPEM),
		"-config="+r.write(dir, "config.json", signingConfig(t, service)),
		"-tls-cert="+r.write(dir, "tls.pem", server.CertPEM), "-tls-key="+r.write(dir, "tls-key.pem", server.KeyPEM),
		"-mutual-tls-ca="+r.write(dir, "clients.pem", clients.CertPEM), "-mutual-tls-cn=^certgen$",
		"-disable=scan,info,gencrl,newcert,newkey,init_ca,bundle,certinfo,/")
	var log strings.Builder
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := host.Start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("cfssl:\n%s", &log)
		}
	})
	client, err := clients.IssueClient(certs.ClientOptions{User: "certgen"})
	if err != nil {
		t.Fatal(err)
	}
	r.Signer = certs.RemoteSigner{URL: fmt.Sprintf("https://127.0.0.1:%d", port),
		CAs: certs.Bundle{transport.Certificate}, Client: keyPair(t, client)}
	r.Flags = []string{"--signer", r.Signer.URL, "--signer-ca", r.write(dir, "signer-ca.pem", transport.CertPEM),
		"--signer-cert", r.write(dir, "certgen.pem", client.CertPEM), "--signer-key",
		r.write(dir, "certgen-key.pem", client.KeyPEM)}
	r.await(host)
	return r
}

// signingConfig returns a configuration with the profile of a serving certificate, and two
// profiles that certgen must reject.
func signingConfig(t *testing.T, service certs.Service) []byte {
	t.Helper()
	profile := func(expiry string, usages ...string) map[string]any {
		return map[string]any{"expiry": expiry, "usages": usages, "name_whitelist": "^(" +
			strings.ReplaceAll(strings.Join(service.DNSNames(), "|"), ".", `\.`) + ")$"}
	}
	config, err := json.Marshal(map[string]any{"signing": map[string]any{
		"default": profile("2160h", "digital signature", "server auth"),
		"profiles": map[string]any{
			"both": profile("2160h", "digital signature", "server auth", "client auth"),
			"long": profile("87600h", "digital signature", "server auth"),
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// await waits until the server accepts connections.
func (r *Server) await(host Host) {
	r.Helper()
	dial := &tls.Config{ServerName: "127.0.0.1", RootCAs: r.Signer.CAs.Pool(), MinVersion: tls.VersionTLS12,
		Certificates: []tls.Certificate{r.Signer.Client}}
	if err := wait.PollUntilContextTimeout(r.Context(), 50*time.Millisecond, 30*time.Second, true,
		func(ctx context.Context) (bool, error) {
			conn, err := host.Dial(ctx, "tcp", strings.TrimPrefix(r.Signer.URL, "https://"))
			if err != nil {
				return false, nil
			}
			defer conn.Close()
			return tls.Client(conn, dial).HandshakeContext(ctx) == nil, nil
		}); err != nil {
		r.Fatalf("cfssl does not respond: %v", err)
	}
}

func keyPair(t *testing.T, pair *certs.KeyPair) tls.Certificate {
	t.Helper()
	out, err := tls.X509KeyPair(pair.CertPEM, pair.KeyPEM)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
