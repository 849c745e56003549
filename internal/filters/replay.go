// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"context"
	"net/http"
	"sync"

	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"
)

// replay makes a watch that begins at a resource version wait for turns while it sends the changes
// since then. Their number is not known before they are sent, so the watch waits after each
// manyObjects events, or manyBytes. From its first turn on, it needs no seat of priority and
// fairness. replay implements utilflowcontrol.InitializationSignal.
type replay struct {
	turns *Turns
	ctx   context.Context //nolint:containedctx // with the signal of priority and fairness
	user  string
	info  *genericapirequest.RequestInfo
	// events and bytes have been sent since the start or the last turn. Only sent uses them.
	events, bytes int

	mutex sync.Mutex
	own   *turn // nil if the watch has no turn
	over  bool
}

// withReplay returns the request with the signal that ends the replay.
func (t *Turns) withReplay(req *http.Request, info *genericapirequest.RequestInfo) (*http.Request, *replay) {
	r := &replay{turns: t, ctx: req.Context(), user: userName(req), info: info}
	return req.WithContext(utilflowcontrol.WithInitializationSignal(req.Context(), r)), r
}

// sent waits for a turn if the watch has sent many changes of the past. An error has status 429.
// The calls must not overlap.
func (r *replay) sent(size int) error {
	r.events++
	r.bytes += size
	if r.events <= manyObjects && r.bytes <= manyBytes {
		return nil
	}
	r.events, r.bytes = 0, 0
	next := &turn{all: r.turns, user: r.user, info: r.info, ended: make(chan struct{})}
	next.seat, _ = r.ctx.Value(seatKey{}).(*seat)
	if !r.begin(next) {
		return nil
	}
	utilflowcontrol.WatchInitialized(r.ctx)
	return next.take(r.ctx)
}

// begin ends the turn of the watch and sets the next one. It returns false if the replay is over.
func (r *replay) begin(next *turn) bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.over {
		return false
	}
	r.endTurn()
	r.own = next
	return true
}

// end ends the replay and its turn.
func (r *replay) end() {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.over = true
	r.endTurn()
}

// endTurn ends the turn of the watch, if it has one. The caller holds the lock.
func (r *replay) endTurn() {
	if r.own != nil {
		close(r.own.ended)
		r.own = nil
	}
}

// Signal implements utilflowcontrol.InitializationSignal.
func (r *replay) Signal() {
	r.end()
	utilflowcontrol.WatchInitialized(r.ctx)
}

// Wait does nothing. Priority and fairness waits for its own signal.
func (r *replay) Wait() {}
