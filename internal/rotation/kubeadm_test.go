// SPDX-License-Identifier: Apache-2.0

package rotation

import (
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

// TestKubeadmLinks: after a rotation kubeadm's names lead to the pairs that were written, and one that was not is as it was.
func TestKubeadmLinks(t *testing.T) {
	client := map[string]string{
		"front-proxy-client.crt": filepath.Join("front-proxy-client", "tls.crt"),
		"front-proxy-client.key": filepath.Join("front-proxy-client", "tls.key"),
		"front-proxy-ca.crt":     filepath.Join("front-proxy-client", "ca.crt"),
		"front-proxy-ca.key":     "",
	}
	for rotation, caKey := range map[string]string{ProxyClient: "", FrontProxyCA: filepath.Join("front-proxy-ca", "tls.key")} {
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

// TestKubeadmsOwn: where certgen init made a front proxy of its own beside kubeadm's, that one stays.
func TestKubeadmsOwn(t *testing.T) {
	f, other := newFake(t), newFakeOfKubeadm(t)
	want := map[string]string{}
	for _, name := range []string{"front-proxy-ca.crt", "front-proxy-ca.key", "front-proxy-client.crt", "front-proxy-client.key"} {
		data, err := os.ReadFile(filepath.Join(other.dir, name))
		if err == nil {
			want[name] = string(data) + "of kubeadm\n"
			err = os.WriteFile(filepath.Join(f.dir, name), []byte(want[name]), 0o600)
		}
		if err != nil {
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

// TestKubeadmRefused: errors tell the names of the files that are there.
func TestKubeadmRefused(t *testing.T) {
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
		if _, ok := errors.AsType[*certs.RefusedError](err); !ok || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("got %v, want a refusal with %s: %s", err, path, tc.want)
		}
		if entries, err := filepath.Glob(filepath.Join(f.dir, "front-proxy*", "tls.*")); err != nil || len(entries) != 0 {
			t.Errorf("%v: it moved files: %q", err, entries)
		}
	}
}

// TestKubeadmAgain: where kubeadm's file is there again, with another certificate of the same CA, nobody knows which one is read.
func TestKubeadmAgain(t *testing.T) {
	f := newFakeOfKubeadm(t)
	if _, err := Run(t.Context(), f.options(ProxyClient)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(f.dir, "front-proxy-client.crt")
	pair, err := readTestCA(f, "front-proxy-ca.crt").IssueClient(certs.ClientOptions{User: certs.FrontProxyUser})
	if err == nil {
		err = os.Remove(path)
	}
	if err == nil {
		err = os.WriteFile(path, pair.CertPEM, 0o600)
	}
	if err == nil {
		err = os.Remove(filepath.Join(f.dir, "front-proxy-client.key"))
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(f.dir, "front-proxy-client.key"), pair.KeyPEM, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	_, err = Run(t.Context(), f.options(ProxyClient))
	if _, ok := errors.AsType[*certs.RefusedError](err); !ok || !strings.Contains(err.Error(), path+": expected a link to") {
		t.Errorf("got %v, want a refusal that names %s", err, path)
	}
}

// TestKubeadmRenews: certgen renew leaves kubeadm's files to kubeadm.
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
