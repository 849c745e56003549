// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"context"
	"crypto/x509"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/kubeconfig"
)

// addresses are the hosts that agents dial, and that the server dials to reach kube-apiserver.
type addresses struct{ agentServer, kubeAPIServer string }

var (
	named = addresses{"konnectivity.example.com", "10.0.0.1"}
	ipv6  = addresses{"fd00::9", "fd00::1"}
)

// pki returns a directory with all key pairs and the server's kubeconfig, created once.
var pki = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "konnectivity-pki-")
	if err != nil {
		return "", err
	}
	return dir, newPKI(dir, named)
})

func TestMain(m *testing.M) {
	code := m.Run()
	if dir, err := pki(); err == nil {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

func newPKI(dir string, a addresses) error {
	ctx := context.Background()
	if _, err := certs.Init(ctx, certs.InitOptions{
		Dir: dir, With: []string{certs.SetKonnectivity}, Service: certs.Service{Name: "extension-apiserver",
			Namespace: "workshop-system"},
		KonnectivityAgentServerNames: []string{a.agentServer},
	}); err != nil {
		return err
	}
	if err := kubeAPIServerCertificate(dir, a.kubeAPIServer); err != nil {
		return err
	}
	users, err := certs.NewCA(certs.CAOptions{Name: "users-ca", Usage: x509.ExtKeyUsageClientAuth})
	if err != nil {
		return err
	}
	if err := users.Write(filepath.Join(dir, "users-ca"), nil); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(dir, "kubeconfig"), 0o700); err != nil {
		return err
	}
	// Next to the kubeconfig, because the server has no other directory.
	serverCA := filepath.Join(dir, "kubeconfig", certs.BundleFile)
	if err := os.WriteFile(serverCA, users.CertPEM, 0o600); err != nil {
		return err
	}
	_, err = kubeconfig.Write(ctx, kubeconfig.Options{
		Client: certs.ClientOptions{User: "system:konnectivity-server"}, CA: filepath.Join(dir, "users-ca"),
		Server:       "https://" + net.JoinHostPort(a.kubeAPIServer, "6443"),
		ServerCAFile: serverCA, Out: filepath.Join(dir, "kubeconfig", "konnectivity-server.kubeconfig"),
	})
	return err
}

// kubeAPIServerCertificate writes kube-apiserver's certificate with the names that kubeadm uses.
func kubeAPIServerCertificate(dir, advertised string) error {
	ca, err := certs.NewCA(certs.CAOptions{Name: "kubernetes", Usage: x509.ExtKeyUsageServerAuth})
	if err != nil {
		return err
	}
	pair, err := ca.IssueServing(certs.ServingOptions{
		DNSNames: []string{"node-1", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
			"kubernetes.default.svc.cluster.local"},
		IPs: []string{"10.96.0.1", advertised},
	})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "apiserver.crt"), pair.CertPEM, 0o600)
}

// newSet writes a combination and its key pairs to a directory.
func newSet(t testing.TB, files map[string]string) string {
	t.Helper()
	from, err := pki()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "pki"), os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	// The copy has other modes.
	if err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			err = os.Chmod(path, 0o600) //nolint:gosec // G122: nobody else is in the directory of a test
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		write(t, dir, name, text)
	}
	return dir
}
