// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// asNobody runs do on a thread that has an ordinary user's file permissions, even if the tests
// run as root. The thread exits with the goroutine.
func asNobody(t *testing.T, do func()) {
	t.Helper()
	const nobody = 65534
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if os.Getuid() == 0 {
			if err := errors.Join(syscall.Setfsgid(nobody), syscall.Setfsuid(nobody)); err != nil {
				t.Error(err)
				return
			}
		}
		do()
	}()
	<-done
}

// TestUnwritableDirectories: in a directory that is not writable, Init returns an error about
// permissions and changes no files.
func TestUnwritableDirectories(t *testing.T) {
	open := func(t *testing.T, path string) {
		if err := os.Chmod(path, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		prepare func(t *testing.T, dir string)
		dir     string
	}{
		"closed":        {func(t *testing.T, dir string) {}, "pki"},
		"to be created": {func(t *testing.T, dir string) {}, "pki/new/below"},
		"leaf's closed": {func(t *testing.T, dir string) {
			mustInit(t, initOptions(dir, epoch))
			open(t, dir)
			openLock(t, dir)
		}, "pki"},
		"without permissions": {func(t *testing.T, dir string) { mustInit(t, initOptions(dir, epoch)) }, "pki"},
	} {
		t.Run(name, func(t *testing.T) {
			// The parent directory of t.TempDir may be inaccessible to other users.
			root, err := os.MkdirTemp("", "certs-") //nolint:usetesting // for the reason above
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = os.RemoveAll(root) }()
			pki := filepath.Join(root, "pki")
			for _, dir := range []string{root, pki} {
				if err := errors.Join(makeDir(dir), os.Chmod(dir, 0o755)); err != nil {
					t.Fatal(err)
				}
			}
			tc.prepare(t, pki)
			before := contents(t, root)
			if os.Getuid() != 0 { // the owner can write; remove that permission for the test
				setModes(t, pki, 0o555)
				defer setModes(t, pki, 0o755)
			}
			asNobody(t, func() {
				// After 61 days, all leaves are due.
				_, err := Init(t.Context(), initOptions(filepath.Join(root, tc.dir), epoch.Add(61*day)))
				_, refused := errors.AsType[*RefusedError](err)
				if !refused && !errors.Is(err, fs.ErrPermission) {
					t.Errorf("got %v, want an error of permissions", err)
				}
			})
			if diff := cmp.Diff(before, contents(t, root)); diff != "" {
				t.Errorf("files changed:\n%s", diff)
			}
		})
	}
}

// openLock lets other users take the lock and read the keys, so that only writing fails.
func openLock(t *testing.T, dir string) {
	t.Helper()
	for _, file := range []string{lockFile, ServingCADir + "/tls.key", ServingDir + "/tls.key", FrontProxyCADir +
		"/tls.key", FrontProxyClientDir + "/tls.key"} {
		if err := os.Chmod(filepath.Join(dir, file), 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

func setModes(t *testing.T, root string, mode fs.FileMode) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			err = os.Chmod(path, mode) //nolint:gosec // a directory of the test alone
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
