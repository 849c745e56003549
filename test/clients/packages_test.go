// SPDX-License-Identifier: Apache-2.0

package clients

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// modules is the directory node_modules that the scripts import from.
var modules string

// scriptDir is a directory with the scripts, beside the packages that those in JavaScript import.
func scriptDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := errors.Join(
		os.CopyFS(dir, os.DirFS("testdata")), os.CopyFS(dir, os.DirFS(packageList)), os.Symlink(modules, filepath.Join(dir, "node_modules")),
	); err != nil {
		t.Fatal(err)
	}
	return dir
}

// packageList is the directory of package.json and package-lock.json.
var packageList = filepath.Join("testdata", "js")

// findModules makes modules: what package-lock.json lists. It is in the cache, where the programs of the control plane are too, and named after
// the lock file: only the first use of a list needs the network.
func findModules() error {
	lock, err := os.ReadFile(filepath.Join(packageList, "package-lock.json"))
	if err != nil {
		return err
	}
	cache := os.Getenv("EXTENSION_APISERVER_CACHE")
	if cache == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return err
		}
		cache = filepath.Join(user, "extension-apiserver")
	}
	dir := filepath.Join(cache, "npm", fmt.Sprintf("%x", sha256.Sum256(lock))[:12])
	modules = filepath.Join(dir, "node_modules")
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return err
	}
	// It gets its name when it is whole: another test may look, and this one may be killed.
	work, err := os.MkdirTemp(filepath.Dir(dir), "installing-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if err := npmCI(work); err != nil {
		return fmt.Errorf("install what test/clients/%s/package-lock.json lists, which needs the network once: %w", packageList, err)
	}
	if err := os.Rename(work, dir); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

func npmCI(dir string) error {
	if err := os.CopyFS(dir, os.DirFS(packageList)); err != nil {
		return err
	}
	// It takes seconds. By itself npm would wait half an hour for a network that drops everything.
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	// None of the packages needs its scripts run.
	cmd := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=1", "--fetch-timeout=30000")
	cmd.Dir = dir
	cmd.WaitDelay = time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("npm ci: %w\n%s", cmp.Or(ctx.Err(), err), out)
	}
	return nil
}
