// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"context"
	"net/http"
	"testing"
	"time"
)

// TestDraining checks that connections stay open until half of the delay after the start of the
// shutdown, and that each then closes with its next response.
func TestDraining(t *testing.T) {
	const patience = 30 * time.Second
	d := &Draining{}
	s := startCounting(t, d.WithConnectionClose(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	ten := func() {
		t.Helper()
		for range 10 {
			if err := s.get(t.Context(), t, "/", "Bearer x"); err != nil {
				t.Fatalf("a request failed, want a response to all of them: %v", err)
			}
		}
	}
	ten()
	if got := s.connections.Load(); got != 1 {
		t.Errorf("connections before the shutdown: got %d, want 1", got)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	began := time.Now()
	const delay = time.Second
	d.Run(ctx, delay)
	if waited := time.Since(began); waited < delay/2 {
		t.Errorf("connections end %s after the shutdown began, want %s for the Service's endpoints", waited, delay/2)
	}
	// The client notices the closed connection shortly after the response.
	for deadline := began.Add(patience); s.connections.Load() < 3 && time.Now().Before(deadline); {
		ten()
	}
	if got := s.connections.Load(); got < 3 {
		t.Errorf("connections %s after the shutdown began: got %d, want a new one again and again", patience, got)
	}
}
