// SPDX-License-Identifier: Apache-2.0

package fairness

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestRateLimiter checks that cancelled requests take no tokens from others, and that the rate is
// kept.
func TestRateLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := NewRateLimiter(100, 1)
		if err := limiter.Wait(t.Context()); err != nil { // takes the burst
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for range 10_000 {
			all.Go(func() {
				// Without a deadline, because client-go's limiter compares a deadline with the
				// expected wait.
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				defer time.AfterFunc(time.Millisecond, cancel).Stop()
				if limiter.Wait(ctx) == nil {
					t.Error("a request has a token within a millisecond, want it cancelled")
				}
			})
		}
		all.Wait()
		began := time.Now()
		for range 10 {
			if err := limiter.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took < 85*time.Millisecond || took > 110*time.Millisecond {
			t.Errorf("10 requests took %s, want 100ms", took)
		}
	})
}
