// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"
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
	lock := flock.New(path, flock.SetPermissions(keyMode))
	// Locks of files have no wait with a limit, so it asks again; 50 ms is far shorter than what a person notices.
	if _, err = lock.TryLockContext(ctx, 50*time.Millisecond); err == nil {
		return lock.Close, nil
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return nil, &RefusedError{Path: path, Reason: "expected to be alone, found another certgen at work in this directory; run this one again when it has ended"}
	case errors.Is(err, context.Canceled):
		return nil, fmt.Errorf("wait for %s: %w", path, err)
	}
	return nil, fmt.Errorf("lock %s: %w", path, err)
}
