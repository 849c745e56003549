// SPDX-License-Identifier: Apache-2.0

package fairness

import (
	"context"

	"k8s.io/client-go/util/flowcontrol"
)

// limiter implements flowcontrol.RateLimiter. Only one request at a time waits for its token. In the limiter of
// client-go each request that waits has reserved one, which is lost when the request is cancelled after others came:
// requests that are cancelled faster than tokens come would make all later ones wait without end.
type limiter struct {
	flowcontrol.RateLimiter
	turn chan struct{}
}

// NewRateLimiter returns a rate limiter for a client of client-go, which requests pass in their order.
func NewRateLimiter(qps float32, burst int) flowcontrol.RateLimiter {
	return limiter{flowcontrol.NewTokenBucketRateLimiter(qps, burst), make(chan struct{}, 1)}
}

// Wait implements flowcontrol.RateLimiter.
func (l limiter) Wait(ctx context.Context) error {
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
		return l.RateLimiter.Wait(ctx)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Accept implements flowcontrol.RateLimiter.
func (l limiter) Accept() {
	l.turn <- struct{}{}
	defer func() { <-l.turn }()
	l.RateLimiter.Accept()
}
