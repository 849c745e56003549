// SPDX-License-Identifier: Apache-2.0

package scripttest

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
	"time"
)

// NPM returns a directory with node_modules, which contains the packages of
// from/package-lock.json. It is in the cache that also contains the programs of the control plane,
// and is named after the lock file: only the first use of a lock file needs the network.
func NPM(ctx context.Context, from string) (dir string, err error) {
	lock, err := os.ReadFile(filepath.Join(from, "package-lock.json"))
	if err != nil {
		return "", err
	}
	cache := os.Getenv("EXTENSION_APISERVER_CACHE")
	if cache == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", err
		}
		cache = filepath.Join(user, "extension-apiserver")
	}
	dir = filepath.Join(cache, "npm", fmt.Sprintf("%x", sha256.Sum256(lock))[:12])
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return "", err
	}
	// The directory gets its name when it is complete, because another test may read it, and this
	// one may be killed.
	work, err := os.MkdirTemp(filepath.Dir(dir), "installing-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(work) }()
	if err := npmCI(ctx, from, work); err != nil {
		return "", fmt.Errorf("install what %s/package-lock.json lists, which needs the network once: %w", from, err)
	}
	if err := os.Rename(work, dir); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	return dir, nil
}

func npmCI(ctx context.Context, from, dir string) error {
	for _, name := range []string{"package.json", "package-lock.json"} {
		data, err := os.ReadFile(filepath.Join(from, name))
		if err := errors.Join(err, os.WriteFile(filepath.Join(dir, name), data, 0o600)); err != nil {
			return err
		}
	}
	// The installation takes seconds. By default, npm would wait half an hour for a network that
	// drops all packets.
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	// None of the packages needs its scripts run.
	cmd := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=1",
		"--fetch-timeout=30000")
	cmd.Dir = dir
	cmd.WaitDelay = time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("npm ci: %w\n%s", cmp.Or(ctx.Err(), err), out)
	}
	return nil
}
