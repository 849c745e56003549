// SPDX-License-Identifier: Apache-2.0

package fairness

import (
	"context"

	"k8s.io/client-go/util/flowcontrol"
)

// limiter implements flowcontrol.RateLimiter. Only one request at a time waits for its token. In
// the limiter of client-go, each waiting request has reserved a token, which is lost if the
// request is cancelled after others arrived. Requests that are cancelled faster than tokens arrive
// would make all later ones wait indefinitely.
type limiter struct {
	flowcontrol.RateLimiter
	turn chan struct{}
}

// NewRateLimiter returns a rate limiter for a client of client-go. Requests pass it in order.
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
