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
	"..data": "-> version", "tls.crt": "-> ..data/tls.crt", "tls.key": "-> ..data/tls.key", "ca.crt": "-> ..data/ca.crt",
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
	// Without a bundle the old one must not stay as a link to nothing.
	if err := issueServing(t, ca, "a.b.svc").Write(dir, nil); err != nil {
		t.Fatal(err)
	}
	if got := tree(t, dir); got["ca.crt"] != "" {
		t.Errorf("ca.crt %s is left over", got["ca.crt"])
	}
}

// Who opens the current version once must find a pair, at every moment of a change.
func TestPairSwitchesTogether(t *testing.T) {
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
			continue // removed between the reading of the link and the opening; readers try again
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

// Plain files, as cp and other tools leave them, become links without being missing in between.
func TestWriteOverPlainFiles(t *testing.T) {
	ca, dir := newServingCA(t), t.TempDir()
	for _, name := range []string{CertFile, KeyFile, BundleFile, "README"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("old"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := issueServing(t, ca, "a.b.svc").Write(dir, Bundle{ca.Certificate}); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"README": "-rw-------"}
	maps.Copy(want, linked)
	if diff := cmp.Diff(want, tree(t, dir)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

// A write that stopped leaves nothing or the whole pair, and what it left is swept up by the next one.
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
		err = linkFiles(dir, files, false)
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
		t.Errorf("after the switch the pair is not there: %v", err)
	}
	if err := issueServing(t, ca, "a.b.svc").Write(dir, Bundle{ca.Certificate}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(linked, tree(t, dir)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

// Missing links come before the switch, and files that are there are replaced after it: where it fails, nothing else has changed.
func TestSwitchFails(t *testing.T) {
	ca, dir := newServingCA(t), t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, dataLink, "full"), dirMode); err != nil { // no link can take its place
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, KeyFile), []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := issueServing(t, ca, "a.b.svc").Write(dir, nil); err == nil {
		t.Fatal("the write had no error")
	}
	want := map[string]string{CertFile: "-> ..data/tls.crt", KeyFile: "-rw-------", "directory -rwxr-xr-x": "+"} // of ..data
	if diff := cmp.Diff(want, tree(t, dir)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}
