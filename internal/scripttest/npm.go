// SPDX-License-Identifier: Apache-2.0

package scripttest

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// NPM returns a directory with node_modules, the packages of the package-lock.json in from. It is in the cache, where the programs of the
// control plane are too, and named after the lock file: only the first use of a list needs the network.
func NPM(t testing.TB, from string) string {
	t.Helper()
	lock, err := os.ReadFile(filepath.Join(from, "package-lock.json"))
	if err != nil {
		t.Fatal(err)
	}
	cache := os.Getenv("EXTENSION_APISERVER_CACHE")
	if cache == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			t.Fatal(err)
		}
		cache = filepath.Join(user, "extension-apiserver")
	}
	dir := filepath.Join(cache, "npm", fmt.Sprintf("%x", sha256.Sum256(lock))[:12])
	if _, err := os.Stat(dir); err == nil {
		return dir
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		t.Fatal(err)
	}
	// It gets its name when it is whole: another test may look, and this one may be killed.
	work, err := os.MkdirTemp(filepath.Dir(dir), "installing-") //nolint:usetesting // it is renamed, for which it must be on the same disk
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(work) }()
	for _, name := range []string{"package.json", "package-lock.json"} {
		data, err := os.ReadFile(filepath.Join(from, name))
		if err := errors.Join(err, os.WriteFile(filepath.Join(work, name), data, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	// None of the packages needs its scripts run.
	cmd := exec.CommandContext(t.Context(), "npm", "ci", "--ignore-scripts", "--engine-strict", "--no-audit", "--no-fund")
	cmd.Dir = work
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("npm ci (%v) did not install what %s/package-lock.json lists. It needs the network once; then %s has it.\n%s", err, from, dir, out)
	}
	if err := os.Rename(work, dir); err != nil && !errors.Is(err, fs.ErrExist) {
		t.Fatal(err)
	}
	return dir
}
