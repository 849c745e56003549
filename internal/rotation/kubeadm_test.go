// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
