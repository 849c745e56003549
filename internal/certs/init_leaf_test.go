// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/x509"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

func TestInitReplacesLeaves(t *testing.T) {
	const file = "file:"
	kept := map[string]string{ServingCADir: "unchanged: valid", FrontProxyCADir: "unchanged: valid",
		FrontProxyClientDir: "unchanged: up to date"}
	for name, tc := range map[string]struct {
		spoil func(t *testing.T, dir string)
		after time.Duration
		want  map[string]string
	}{
		"due": {nil, 61 * day, map[string]string{
			ServingDir:          "replaced: less than a third of the lifetime was left",
			FrontProxyClientDir: "replaced: less than a third of the lifetime was left",
		}},
		"expired": {nil, 91 * day, map[string]string{ServingDir: "replaced: expired at",
			FrontProxyClientDir: "replaced: expired at"}},
		"gone": {remove(ServingDir), 0, map[string]string{ServingDir: "created: not found"}},
		"no key": {remove(ServingDir + "/..data/tls.key"), 0,
			map[string]string{ServingDir: "replaced: tls.key was missing"}},
		"no certificate": {remove(ServingDir + "/..data/tls.crt"), 0,
			map[string]string{ServingDir: "replaced: tls.crt was missing"}},
		"version gone": {remove(ServingDir + "/..data/"), 0, map[string]string{ServingDir: "created: not found"}},
		"damaged": {overwrite(ServingDir+"/tls.crt", "what"), 0,
			map[string]string{ServingDir: "replaced: tls.crt was damaged"}},
		"key damaged": {overwrite(ServingDir+"/tls.key", ""), 0,
			map[string]string{ServingDir: "replaced: tls.key was damaged"}},
		"key of another": {overwrite(ServingDir+"/tls.key", file+FrontProxyClientDir+"/tls.key"), 0,
			map[string]string{ServingDir: "replaced: tls.key did not match tls.crt"}},
		"other CA's pair": {func(t *testing.T, dir string) {
			overwrite(ServingDir+"/tls.key", file+FrontProxyClientDir+"/tls.key")(t, dir)
			overwrite(ServingDir+"/tls.crt", file+FrontProxyClientDir+"/tls.crt")(t, dir)
		}, 0, map[string]string{ServingDir: "replaced: signed by CN=front-proxy-ca"}},
		"both usages": {forgeBothUsages, 0,
			map[string]string{ServingDir: "extended key usages: expected [serverAuth], found [serverAuth clientAuth]"}},
		"no bundle": {remove(ServingDir + "/..data/ca.crt"), 0,
			map[string]string{ServingDir: "replaced: ca.crt did not contain the CA; certificate and key are unchanged"}},
		"damaged bundle": {overwrite(ServingDir+"/ca.crt", "x"), 0,
			map[string]string{ServingDir: "replaced: ca.crt did not contain the CA"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			mustInit(t, initOptions(dir, epoch))
			old := readPEM(t, dir, ServingDir, KeyFile)
			if tc.spoil != nil {
				tc.spoil(t, dir)
			}
			now := epoch.Add(tc.after)
			report := mustInit(t, initOptions(dir, now))
			checkActions(t, report, kept, tc.want)
			pair, err := ReadKeyPair(filepath.Join(dir, ServingDir))
			if err != nil {
				t.Fatal(err)
			}
			if same := string(pair.KeyPEM) == string(old); same != strings.Contains(tc.want[ServingDir], BundleFile) {
				t.Errorf("the key is the old one: %v", same)
			}
			for name, got := range actions(mustInit(t, initOptions(dir, now))) {
				if !strings.HasPrefix(got, "unchanged: ") {
					t.Errorf("another run: %s %s, want it unchanged", name, got)
				}
			}
		})
	}
}

// forgeBothUsages gives the server a certificate that is also valid for clients.
func forgeBothUsages(t *testing.T, dir string) {
	t.Helper()
	ca, err := ReadKeyPair(filepath.Join(dir, ServingCADir))
	if err != nil {
		t.Fatal(err)
	}
	pair := forge(t, *ca, &x509.Certificate{
		DNSNames: widgets.DNSNames(), NotBefore: epoch, NotAfter: epoch.Add(90 * day),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
	if err := pair.Write(filepath.Join(dir, ServingDir), Bundle{ca.Certificate}); err != nil {
		t.Fatal(err)
	}
}

// checkActions compares a part of each key pair's report with the expected text; special
// overrides standard.
func checkActions(t *testing.T, report *Report, standard, special map[string]string) {
	t.Helper()
	for name, got := range actions(report) {
		want, ok := special[name]
		if !ok {
			want = standard[name]
		}
		if !strings.Contains(got, want) || want == "" {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}

// remove deletes the file at path after following links.
func remove(path string) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		if runtime.GOOS == "windows" {
			path = strings.Replace(path, "/"+dataLink, "", 1)
		}
		target, err := filepath.EvalSymlinks(filepath.Join(dir, path))
		if err == nil {
			err = os.RemoveAll(target)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// overwrite writes text to path, or the content of another file if text begins with "file:".
func overwrite(path, text string) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		data := []byte(text)
		if source, ok := strings.CutPrefix(text, "file:"); ok {
			data = readPEM(t, dir, source)
		}
		if err := os.WriteFile(filepath.Join(dir, path), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
