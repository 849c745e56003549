// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"context"
	"net/http"
	"sync"

	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"
)

// fewChanges is the number of changes that a watch sends in a turn. fewBytes is the same for their
// total size in bytes.
const fewChanges, fewBytes = 100, 128 << 10

// replay makes a watch that begins at a resource version wait for its turn, as a list does, before
// it starts and again after each fewChanges changes since then, or fewBytes. The library copies and
// encodes each of them for each watch. Their number is not known before they are sent. The turn of
// a watch without changes ends at once. A watch with turns needs no seat of priority and fairness.
// replay implements utilflowcontrol.InitializationSignal.
type replay struct {
	turns *Turns
	ctx   context.Context //nolint:containedctx // with the signal of priority and fairness
	user  string
	info  *genericapirequest.RequestInfo
	// events and bytes have been sent in this turn. Only sent uses them.
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

// next waits for the next turn, unless the replay is over. An error has status 429.
func (r *replay) next() error {
	turn := &turn{all: r.turns, user: r.user, info: r.info, ended: make(chan struct{})}
	turn.seat, _ = r.ctx.Value(seatKey{}).(*seat)
	if !r.begin(turn) {
		return nil
	}
	utilflowcontrol.WatchInitialized(r.ctx)
	return turn.take(r.ctx)
}

// sent waits for the next turn if the watch has sent the changes of one. The calls must not overlap.
func (r *replay) sent(size int) error {
	r.events++
	r.bytes += size
	if r.events <= fewChanges && r.bytes <= fewBytes {
		return nil
	}
	r.events, r.bytes = 0, 0
	return r.next()
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
