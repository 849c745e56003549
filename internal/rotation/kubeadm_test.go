// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/extension-apiserver/internal/certs"
)

// TestKubeadmLinks: after a rotation, kubeadm's names link to the replaced key pairs. Files of
// other key pairs do not change.
func TestKubeadmLinks(t *testing.T) {
	client := map[string]string{
		"front-proxy-client.crt": filepath.Join("front-proxy-client", "tls.crt"),
		"front-proxy-client.key": filepath.Join("front-proxy-client", "tls.key"),
		"front-proxy-ca.crt":     filepath.Join("front-proxy-client", "ca.crt"),
		"front-proxy-ca.key":     "",
	}
	for rotation, caKey := range map[string]string{ProxyClient: "",
		FrontProxyCA: filepath.Join("front-proxy-ca", "tls.key")} {
		f := newFakeOfKubeadm(t)
		if _, err := Run(t.Context(), f.options(rotation)); err != nil {
			t.Fatal(err)
		}
		client["front-proxy-ca.key"] = caKey
		got := map[string]string{}
		for name := range client {
			got[name], _ = os.Readlink(filepath.Join(f.dir, name))
		}
		if diff := cmp.Diff(client, got); diff != "" {
			t.Errorf("%s: links (-want +got):\n%s", rotation, diff)
		}
	}
}

// TestKubeadmFilesUnchanged: if certgen init created its own front-proxy certificates next to
// kubeadm's, kubeadm's do not change.
func TestKubeadmFilesUnchanged(t *testing.T) {
	f := newFake(t)
	ca, err := certs.NewCA(certs.CAOptions{Name: "front-proxy-ca", Usage: x509.ExtKeyUsageClientAuth})
	if err != nil {
		t.Fatal(err)
	}
	client, err := ca.IssueClient(certs.ClientOptions{User: certs.FrontProxyUser})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for name, data := range map[string][]byte{
		"front-proxy-ca.crt": ca.CertPEM, "front-proxy-ca.key": ca.KeyPEM, "front-proxy-client.crt": client.CertPEM,
		"front-proxy-client.key": client.KeyPEM,
	} {
		want[name] = string(data)
		if err := os.WriteFile(filepath.Join(f.dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b := f.before()
	if _, err := Run(t.Context(), f.options(FrontProxyCA)); err != nil {
		t.Fatal(err)
	}
	f.checkEnd(b, FrontProxyCA)
	for name, content := range want {
		data, err := os.ReadFile(filepath.Join(f.dir, name))
		info, statErr := os.Lstat(filepath.Join(f.dir, name))
		if err := errors.Join(err, statErr); err != nil || string(data) != content || !info.Mode().IsRegular() {
			t.Errorf("%s was changed, or is a link (%v)", name, err)
		}
	}
}

// TestKubeadmErrors: errors contain kubeadm's file names.
func TestKubeadmErrors(t *testing.T) {
	for _, tc := range []struct{ name, want string }{
		{"front-proxy-ca.key", "expected the CA's key, found none"},
		{"front-proxy-client.key", "front-proxy-client.key: file does not exist"},
	} {
		f := newFakeOfKubeadm(t)
		path := filepath.Join(f.dir, tc.name)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		_, err := Run(t.Context(), f.options(ProxyClient))
		if _, ok := errors.AsType[*certs.RefusedError](err); !ok || !strings.Contains(err.Error(), path) ||
			!strings.Contains(err.Error(), tc.want) {
			t.Errorf("got %v, want a refusal with %s: %s", err, path, tc.want)
		}
		if entries, err := filepath.Glob(filepath.Join(f.dir, "front-proxy*", "tls.*")); err != nil ||
			len(entries) != 0 {
			t.Errorf("%v: it moved files: %q", err, entries)
		}
	}
}

// TestKubeadmChangedFile: a rotation refuses a kubeadm file with different content, for example
// after kubeadm certs renew before the links existed, and a link to another file. A resumed
// rotation does the same. The remedy in the error works.
func TestKubeadmChangedFile(t *testing.T) {
	renewed := func(f *fakeCluster) {
		pair, err := readTestCA(f, "front-proxy-ca.crt").IssueClient(certs.ClientOptions{User: certs.FrontProxyUser})
		if err != nil {
			t.Fatal(err)
		}
		f.replace("front-proxy-client.crt", pair.CertPEM)
		f.replace("front-proxy-client.key", pair.KeyPEM)
	}
	for _, tc := range []struct {
		name, want string
		before     bool // before the first rotation
		change     func(*fakeCluster)
	}{
		{"another pair", "front-proxy-client.crt: expected the content of", false, renewed},
		{"another form of the key", "front-proxy-client.key: expected the content of", false, func(f *fakeCluster) {
			pair, err := certs.ReadKeyPair(filepath.Join(f.dir, "front-proxy-client"))
			if err != nil {
				t.Fatal(err)
			}
			f.replace("front-proxy-client.key", ofOpenSSL(t, pair.Key))
		}},
		{"a link", "front-proxy-client.key: expected a file, found a link to elsewhere.key", true,
			func(f *fakeCluster) {
				path := filepath.Join(f.dir, "front-proxy-client.key")
				if err := errors.Join(os.Rename(path, filepath.Join(f.dir, "elsewhere.key")),
					os.Symlink("elsewhere.key", path)); err != nil {
					t.Fatal(err)
				}
			}},
		{"text after the CAs", "front-proxy-ca.crt: ", true,
			func(f *fakeCluster) { f.appendTo(filepath.Join(f.dir, "front-proxy-ca.crt"), "-----BEGIN") }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFakeOfKubeadm(t)
			if !tc.before {
				if _, err := Run(t.Context(), f.options(ProxyClient)); err != nil {
					t.Fatal(err)
				}
			}
			tc.change(f)
			_, err := Run(t.Context(), f.options(FrontProxyCA))
			if _, ok := errors.AsType[*certs.RefusedError](err); !ok || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want a refusal with %q", err, tc.want)
			}
		})
	}

	f := killedBeforeLinks(t)
	renewed(f)
	var blocked *BlockedError
	if _, err := Run(t.Context(), f.options(ProxyClient)); !errors.As(err, &blocked) ||
		!strings.Contains(err.Error(), "expected the content of") {
		t.Errorf("taken up: got %v, want it blocked", err)
	}
	f.mustAbort(ProxyClient)
	for kubeadms, certgens := range map[string]string{"front-proxy-client.crt": "tls.crt",
		"front-proxy-client.key": "tls.key"} {
		data, err := os.ReadFile(filepath.Join(f.dir, kubeadms))
		if err == nil {
			err = os.WriteFile(filepath.Join(f.dir, "front-proxy-client", certgens), data, 0o600) // as cp does
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	b := f.before()
	if _, err := Run(t.Context(), f.options(ProxyClient)); err != nil {
		t.Fatal(err)
	}
	f.checkEnd(b, ProxyClient)
}

// killedBeforeLinks returns a cluster whose rotation was killed after kubeadm's files had moved
// and before any link existed.
func killedBeforeLinks(t *testing.T) *fakeCluster {
	t.Helper()
	for _, cut := range cuts(newFakeOfKubeadm(t), ProxyClient) {
		f := newFakeOfKubeadm(t)
		f.left = cut
		_, _ = f.runUntilKilled(Run, ProxyClient)
		_, err := os.Stat(filepath.Join(f.dir, "front-proxy-client"))
		info, statErr := os.Lstat(filepath.Join(f.dir, "front-proxy-client.crt"))
		if err == nil && statErr == nil && info.Mode().IsRegular() {
			f.left = -1
			return f
		}
	}
	t.Fatal("it was never killed between")
	return nil
}

func (f *fakeCluster) replace(name string, data []byte) {
	f.t.Helper()
	path := filepath.Join(f.dir, name)
	if err := errors.Join(os.Remove(path), os.WriteFile(path, data, 0o600)); err != nil {
		f.t.Fatal(err)
	}
}

// TestKubeadmHosts: the CA's file belongs to the kube-apiserver whose directory is next to it,
// even through an alias of that directory. If it belongs to none, the rotation is refused.
func TestKubeadmHosts(t *testing.T) {
	f := newFakeOfKubeadm(t)
	alias := filepath.Join(t.TempDir(), "pki")
	if err := os.Symlink(f.dir, alias); err != nil {
		t.Fatal(err)
	}
	opts := f.options(FrontProxyCA)
	opts.FrontProxyClientDirs = []string{filepath.Join(alias, "front-proxy-client"),
		filepath.Join(f.dir, "front-proxy-client")}
	b := f.before()
	if _, err := Run(t.Context(), opts); err != nil {
		t.Fatal(err)
	}
	f.checkEnd(b, FrontProxyCA)

	f = newFakeOfKubeadm(t)
	f.addProxyOf("front-proxy-ca.crt")
	opts = f.options(FrontProxyCA)
	elsewhere := filepath.Join(t.TempDir(), "front-proxy-client")
	if err := os.Rename(f.proxies[1], elsewhere); err != nil {
		t.Fatal(err)
	}
	opts.FrontProxyClientDirs = []string{elsewhere, elsewhere}
	_, err := Run(t.Context(), opts)
	if _, ok := errors.AsType[*certs.RefusedError](err); !ok ||
		!strings.Contains(err.Error(), filepath.Join(f.dir,
			"front-proxy-client")+" in --front-proxy-client") {
		t.Errorf("got %v, want a refusal that names the directory beside the CA's file", err)
	}
}

// TestKubeadmLifetime: kubeadm's certificate is valid for a year, and so is its replacement.
func TestKubeadmLifetime(t *testing.T) {
	f := newFakeOfKubeadm(t)
	opts := f.options(ProxyClient)
	opts.Lifetime = 365 * 24 * time.Hour
	for range 2 {
		if _, err := Run(t.Context(), opts); err != nil {
			t.Fatal(err)
		}
		if cert := f.cert(certs.FrontProxyClientDir); cert.NotAfter.Sub(f.now).Round(24*time.Hour) != 365*24*time.Hour {
			t.Errorf("it ends at %s, in %s", cert.NotAfter, cert.NotAfter.Sub(f.now))
		}
		opts.Lifetime = 0
	}
}

// TestKubeadmRenews: Renew does not change kubeadm's files.
func TestKubeadmRenews(t *testing.T) {
	f := newFakeOfKubeadm(t)
	files := f.proxyFiles()
	f.now = f.now.Add(61 * 24 * time.Hour)
	if report, err := Renew(t.Context(), f.options("")); err != nil || len(report.Items) != 1 {
		t.Errorf("got %v and %+v, want the serving certificate alone", err, report)
	}
	if now := f.proxyFiles(); !slices.Equal(now, files) {
		t.Error("kubeadm's files were changed")
	}
}
