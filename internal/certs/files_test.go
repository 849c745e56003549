// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// modeText returns a file's mode as listings show it. Windows has only one mode for writable
// files.
func modeText(mode fs.FileMode) string {
	if runtime.GOOS == "windows" {
		mode = 0o666
	}
	return mode.String()
}

// tree lists dir as "name mode" or "name -> target". Versions appear only with their prefix.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		info, err := os.Lstat(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(filepath.Join(dir, e.Name()))
			if err != nil {
				t.Fatal(err)
			}
			if filepath.Dir(target) == "." {
				target = "version"
			}
			out[e.Name()] = "-> " + target
		case e.IsDir():
			out["directory "+info.Mode().Perm().String()] += "+"
		default:
			out[e.Name()] = info.Mode().Perm().String()
		}
	}
	return out
}

// TestReplaceFiles: without symlinks, a key pair is two plain files, and other files of the
// previous set are removed.
func TestReplaceFiles(t *testing.T) {
	ca, dir := newServingCA(t), t.TempDir()
	first, second := issueServing(t, ca, "a.b.svc"), issueServing(t, ca, "a.b.svc")
	for _, files := range []Files{first.Files(Bundle{ca.Certificate}), second.Files(nil)} {
		if err := replaceFiles(dir, files); err != nil {
			t.Fatal(err)
		}
		if pair, err := ReadKeyPair(dir); err != nil || !bytes.Equal(pair.CertPEM, files[CertFile].Data) {
			t.Errorf("got %v, want the pair that was written", err)
		}
	}
	want := map[string]string{"tls.crt": modeText(certMode), "tls.key": modeText(keyMode)}
	if diff := cmp.Diff(want, tree(t, dir)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	// The key of a removed certificate is removed too.
	if err := replaceFiles(dir, Files{CertFile: {Data: ca.CertPEM, Mode: certMode}}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"tls.crt": modeText(certMode)}, tree(t, dir)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if err := replaceFiles(filepath.Join(dir, "nowhere"), first.Files(nil)); err == nil {
		t.Error("a missing directory: got no error")
	}
}

// TestWriteRemovesOldKey: a new certificate without a key removes the old key, even if
// that is a plain file.
func TestWriteRemovesOldKey(t *testing.T) {
	ca, dir := newServingCA(t), t.TempDir()
	for name, data := range map[string][]byte{CertFile: ca.CertPEM, KeyFile: ca.KeyPEM} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := WriteFiles(dir, Files{CertFile: {Data: newServingCA(t).CertPEM, Mode: certMode}}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, KeyFile)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the key of the certificate before: got %v, want it gone", err)
	}
}

func TestWriteRejectsFileAsDirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{file, filepath.Join(file, "below")} {
		wantError(t, WriteFiles(dir, nil), "expected a directory, found a file")
	}
}
