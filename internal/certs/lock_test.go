// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestLock(t *testing.T) {
	dir := t.TempDir()
	unlock, err := Dir(dir).Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	soon, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err = Dir(dir).Lock(soon)
	if _, ok := errors.AsType[*RefusedError](err); !ok {
		t.Errorf("got %v, want *RefusedError while the lock is held", err)
	}
	interrupted, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Dir(dir).Lock(interrupted); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
	if unlock, err = Dir(dir).Lock(t.Context()); err != nil {
		t.Fatalf("lock again: %v", err)
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
}

// TestLockWaits: a second caller waits for the lock instead of failing immediately.
func TestLockWaits(t *testing.T) {
	dir := t.TempDir()
	unlock, err := Dir(dir).Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan error)
	go func() {
		second, err := Dir(dir).Lock(t.Context())
		if err == nil {
			err = second()
		}
		got <- err
	}()
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Errorf("second lock: %v", err)
	}
}
