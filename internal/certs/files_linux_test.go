// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestWriteNotifiesWatchers: a write gives inotify watches of tls.crt and tls.key an event.
// Servers based on k8s.io/apiserver watch these files, follow the symlinks, and reload only
// after an event. Only the removal of the old file causes one.
func TestWriteNotifiesWatchers(t *testing.T) {
	ca, dir := newServingCA(t), t.TempDir()
	if err := issueServing(t, ca, "a.b.svc").Write(dir, nil); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{CertFile, KeyFile} {
		fd, err := syscall.InotifyInit1(syscall.IN_NONBLOCK | syscall.IN_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = syscall.Close(fd) }()
		if _, err := syscall.InotifyAddWatch(fd, filepath.Join(dir, name), syscall.IN_DELETE_SELF); err != nil {
			t.Fatal(err)
		}
		if err := issueServing(t, ca, "a.b.svc").Write(dir, nil); err != nil {
			t.Fatal(err)
		}
		if n, err := syscall.Read(fd, make([]byte, 4096)); err != nil || n < syscall.SizeofInotifyEvent {
			t.Errorf("watch of %s: got %d bytes, %v; want an event", name, n, err)
		}
	}
}

// TestDirectoryModes: only the owner can access the directory with a CA's key. A leaf's directory
// is accessible to other users, such as its server's.
func TestDirectoryModes(t *testing.T) {
	dir := t.TempDir()
	mustInit(t, InitOptions{Dir: dir, Service: Service{Name: "widgets", Namespace: "demo"}})
	for name, want := range map[string]os.FileMode{ServingCADir: 0o700, FrontProxyCADir: 0o700, ServingDir: 0o755} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: mode %v, %v; want %v", name, info.Mode().Perm(), err, want)
		}
	}
}

// TestWriteModeDespiteUmask: files have the requested mode regardless of the umask.
func TestWriteModeDespiteUmask(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0))
	dir := t.TempDir()
	if err := issueServing(t, newServingCA(t), "a.b.svc").Write(dir, nil); err != nil {
		t.Fatal(err)
	}
	if got := tree(t, filepath.Join(dir, "..data")+"/")["tls.key"]; got != "-rw-------" {
		t.Errorf("got key mode %s, want -rw-------", got)
	}
}
