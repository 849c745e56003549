// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

const lockFile = ".certgen.lock"

// Lock makes dir if need be and takes its lock, which the kernel gives back when the process ends, however it ends.
// It waits while another process holds it, until ctx ends. The file stays: to remove it would let a third process
// lock a new file of the same name.
func Lock(ctx context.Context, dir string) (unlock func() error, err error) {
	if err := makeDir(dir); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, lockFile)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, keyMode)
	if err != nil {
		return nil, fmt.Errorf("open lock file: %w", err)
	}
	// flock has no wait with a limit, so ask again; 50 ms is far shorter than what a person notices.
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		switch err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); {
		case err == nil:
			return f.Close, nil
		case !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR):
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.Canceled) {
				return nil, errors.Join(fmt.Errorf("wait for %s: %w", path, ctx.Err()), f.Close())
			}
			return nil, errors.Join(&RefusedError{Path: path, Reason: "expected to be alone, found another certgen at work in this directory; run this one again when it has ended"}, f.Close())
		}
	}
}
