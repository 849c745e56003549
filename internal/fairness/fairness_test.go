// SPDX-License-Identifier: Apache-2.0

package fairness

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestSlots checks that a key that has taken all its slots waits, is rejected when its queue is
// full, and does not affect other keys.
func TestSlots(t *testing.T) {
	p := New(Limits{PerKey: 2, Queued: 1})
	take := func(ctx context.Context, key string) func() {
		t.Helper()
		release, err := p.Take(ctx, key)
		if err != nil {
			t.Fatalf("take a slot for %s: %v", key, err)
		}
		return release
	}
	first, second := take(t.Context(), "a"), take(t.Context(), "a")
	waited := make(chan func())
	go func() {
		release, err := p.Take(t.Context(), "a")
		if err != nil {
			t.Error(err)
		}
		waited <- release
	}()
	for queued := false; !queued; {
		p.mutex.Lock()
		queued = p.keys["a"].count == 3
		p.mutex.Unlock()
	}
	if _, err := p.Take(t.Context(), "a"); !errors.Is(err, ErrFull) {
		t.Fatalf("take a slot while all are taken and the queue is full: got %v, want %v", err, ErrFull)
	}
	select {
	case <-waited:
		t.Fatal("a third slot was given out, want 2")
	default:
	}
	take(t.Context(), "b")()
	first()
	third := <-waited
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Take(cancelled, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("wait with a context that ended: got %v, want %v", err, context.Canceled)
	}
	second()
	third()
	if len(p.keys) != 0 {
		t.Errorf("%d keys are stored without a slot, want none", len(p.keys))
	}
}

// TestTotal checks that each key still gets its reserved slots when the total is reached.
func TestTotal(t *testing.T) {
	p := New(Limits{PerKey: 4, Total: 6, Reserved: 2})
	var releases []func()
	take := func(key string, count, want int) {
		t.Helper()
		got := 0
		for range count {
			release, err := p.Take(t.Context(), key)
			if err != nil {
				continue
			}
			got++
			releases = append(releases, release)
		}
		if got != want {
			t.Errorf("slots of %s: got %d of %d, want %d", key, got, count, want)
		}
	}
	take("a", 5, 4)
	take("b", 5, 4)
	take("c", 5, 2)
	releases[0]()
	take("c", 2, 1)
	for _, release := range releases[1:] {
		release()
	}
	if len(p.keys) != 0 || len(p.total) != 0 {
		t.Errorf("after all were released: got %d keys and %d slots, want none", len(p.keys), len(p.total))
	}
}

// TestTotalWaits checks that a key with a queue waits for the total, or for its own reserve.
func TestTotalWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Limits{PerKey: 3, Queued: 1, Total: 2, Reserved: 1})
		take := func(key string) (release func()) {
			t.Helper()
			release, err := p.Take(t.Context(), key)
			if err != nil {
				t.Fatalf("take a slot for %s: %v", key, err)
			}
			return release
		}
		later := func(key string) <-chan func() {
			taken := make(chan func(), 1)
			go func() { taken <- take(key) }()
			synctest.Wait()
			if len(taken) > 0 {
				t.Fatalf("%s got a slot beyond the total", key)
			}
			return taken
		}
		first, second := take("a"), take("a")
		reserved := take("b")
		ofTotal := later("b")
		first()
		third := <-ofTotal
		ofReserve := later("b")
		reserved()
		fourth := <-ofReserve
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := p.Take(ctx, "b"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("wait until the context ends: got %v, want %v", err, context.DeadlineExceeded)
		}
		second()
		third()
		fourth()
		if len(p.keys) != 0 || len(p.total) != 0 {
			t.Errorf("after all were released: got %d keys and %d slots, want none", len(p.keys), len(p.total))
		}
	})
}

func TestHost(t *testing.T) {
	for address, want := range map[string]string{"192.0.2.1:1234": "192.0.2.1", "[2001:db8::1:2]:1234": "2001:db8::/64",
		"@": "@", "": ""} {
		if got := ClientKey(address); got != want {
			t.Errorf("Host(%q): got %q, want %q", address, got, want)
		}
	}
}
