// SPDX-License-Identifier: Apache-2.0

//go:build !windows

package certs

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var linked = map[string]string{
	"..data": "-> version", "tls.crt": "-> ..data/tls.crt", "tls.key": "-> ..data/tls.key",
	"ca.crt":               "-> ..data/ca.crt",
	"directory -rwxr-xr-x": "+",
}

func TestWritePair(t *testing.T) {
	ca := newServingCA(t)
	dir := filepath.Join(t.TempDir(), "new", "pair")
	for range 2 { // the second time over the first
		pair := issueServing(t, ca, "a.b.svc")
		if err := pair.Write(dir, Bundle{ca.Certificate}); err != nil {
			t.Fatal(err)
		}
		got, err := ReadKeyPair(dir)
		if err != nil || !bytes.Equal(got.CertPEM, pair.CertPEM) || !bytes.Equal(got.KeyPEM, pair.KeyPEM) {
			t.Fatalf("got another pair back: %v", err)
		}
		if diff := cmp.Diff(linked, tree(t, dir)); diff != "" {
			t.Errorf("files (-want +got):\n%s", diff)
		}
		want := map[string]string{"tls.crt": "-rw-r--r--", "tls.key": "-rw-------", "ca.crt": "-rw-r--r--"}
		if diff := cmp.Diff(want, tree(t, filepath.Join(dir, "..data")+"/")); diff != "" {
			t.Errorf("modes (-want +got):\n%s", diff)
		}
	}
	// Without a bundle, the old one must not remain as a dangling link.
	if err := issueServing(t, ca, "a.b.svc").Write(dir, nil); err != nil {
		t.Fatal(err)
	}
	if got := tree(t, dir); got["ca.crt"] != "" {
		t.Errorf("ca.crt %s is left over", got["ca.crt"])
	}
}

// TestKeyPairIsReplacedAtomically: a reader that opens the current version once sees a matching key
// pair at any time during a change.
func TestKeyPairIsReplacedAtomically(t *testing.T) {
	ca, dir := newServingCA(t), t.TempDir()
	if err := issueServing(t, ca, "a.b.svc").Write(dir, nil); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 50 {
			pair, err := ca.IssueServing(ServingOptions{DNSNames: []string{"a.b.svc"}})
			if err == nil {
				err = pair.Write(dir, nil)
			}
			if err != nil {
				t.Error(err)
				return
			}
		}
	}()
	for reads := 0; ; {
		select {
		case <-done:
			if reads == 0 {
				t.Error("no version was read while it changed")
			}
			return
		default:
		}
		version, err := os.OpenRoot(filepath.Join(dir, dataLink))
		if err != nil {
			continue // removed after the link was read; readers retry
		}
		certPEM, certErr := version.ReadFile(CertFile)
		keyPEM, keyErr := version.ReadFile(KeyFile)
		if certErr == nil && keyErr == nil {
			if _, err := ParseKeyPair(certPEM, keyPEM); err != nil {
				t.Fatal(err)
			}
			reads++
		}
		if err := version.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWriteOverPlainFiles: plain files, as cp and other tools create them, become links to a
// version with the same content. A write then replaces all of them at once. This also works for
// a plain file next to links.
func TestWriteOverPlainFiles(t *testing.T) {
	ca := newServingCA(t)
	for _, plain := range [][]string{{CertFile, KeyFile, BundleFile}, {CertFile}, {KeyFile}} {
		dir, old := t.TempDir(), issueServing(t, ca, "a.b.svc")
		files := old.Files(Bundle{ca.Certificate})
		if err := old.Write(dir, Bundle{ca.Certificate}); err != nil {
			t.Fatal(err)
		}
		for _, name := range plain {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, name), files[name].Data, files[name].Mode); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, "README"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		// A write that stops here has changed nothing for readers.
		if err := linkPlainFiles(dir, []string{CertFile}); err != nil {
			t.Fatal(err)
		}
		if got, err := Dir(dir).Read(""); err != nil || !cmp.Equal(got, files) {
			t.Errorf("%q: the links lead to other files, or %v", plain, err)
		}
		want := map[string]string{"README": "-rw-------"}
		maps.Copy(want, linked)
		for _, name := range []string{"before", "after"} {
			got := tree(t, dir)
			got["directory -rwxr-xr-x"] = "+" // the write removes earlier versions
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%q: files %s the write (-want +got):\n%s", plain, name, diff)
			}
			if err := issueServing(t, ca, "a.b.svc").Write(dir, Bundle{ca.Certificate}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestInterruptedWrite: an interrupted write leaves either nothing or the whole key pair, and
// the next write removes its leftovers.
func TestInterruptedWrite(t *testing.T) {
	ca, dir := newServingCA(t), t.TempDir()
	first := issueServing(t, ca, "a.b.svc")
	files := first.Files(Bundle{ca.Certificate})
	if err := os.Symlink("nowhere", filepath.Join(dir, linkPrefix+CertFile)); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, versionPrefix+"1"), dirMode); err != nil {
		t.Fatal(err)
	}
	version, err := writeVersion(dir, files)
	if err == nil {
		err = linkFiles(dir, []string{CertFile, KeyFile, BundleFile})
	}
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Dir(dir).Read(""); len(got) > 0 || err != nil {
		t.Errorf("before the switch there is %v, %v", slices.Collect(maps.Keys(got)), err)
	}
	if err := ReplaceLink(dir, version, dataLink); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadKeyPair(dir); err != nil || !bytes.Equal(got.CertPEM, first.CertPEM) {
		t.Errorf("after the switch the key pair does not exist: %v", err)
	}
	if err := issueServing(t, ca, "a.b.svc").Write(dir, Bundle{ca.Certificate}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(linked, tree(t, dir)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

// TestSwitchFails: if the switch fails, links exist, but nothing else has changed.
func TestSwitchFails(t *testing.T) {
	for plain, want := range map[bool]map[string]string{
		// the directory is ..data
		false: {CertFile: "-> ..data/tls.crt", KeyFile: "-> ..data/tls.key", "directory -rwxr-xr-x": "+"},
		true:  {CertFile: "-rw-------", "directory -rwxr-xr-x": "+"},
	} {
		ca, dir := newServingCA(t), t.TempDir()
		if err := os.MkdirAll(filepath.Join(dir, dataLink, "full"), dirMode); err != nil { // no link can replace it
			t.Fatal(err)
		}
		if plain {
			if err := os.WriteFile(filepath.Join(dir, CertFile), []byte("old"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := issueServing(t, ca, "a.b.svc").Write(dir, nil); err == nil {
			t.Error("the write had no error")
		}
		if diff := cmp.Diff(want, tree(t, dir)); diff != "" {
			t.Errorf("plain files %v (-want +got):\n%s", plain, diff)
		}
	}
}
