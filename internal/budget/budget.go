// SPDX-License-Identifier: Apache-2.0

// Package budget shares an amount, such as bytes of memory, among the requests of many users.
package budget

import (
	"context"
	"slices"
	"sync"
)

// Budget gives out shares in the order in which they were asked for, except that a user who has as much as one may have
// is passed over.
type Budget struct {
	total, perUser int64

	mutex    sync.Mutex
	taken    int64
	reserved int64
	users    map[string]int64 // what each has taken
	queue    []*waiting
}

// waiting is a request that waits for a share. ready is closed when it has it.
type waiting struct {
	user  string
	share int64
	ready chan struct{}
}

// New returns a Budget of total. A user may have perUser of it, or one share that is larger.
func New(total, perUser int64) *Budget {
	return &Budget{total: total, perUser: perUser, users: map[string]int64{}}
}

// Take waits for a share until the context ends. One that is larger than the total counts for the total. Call release,
// once, to give it back. A request that has a share must not ask for another: it might wait for itself.
func (b *Budget) Take(ctx context.Context, user string, share int64) (release func(), err error) {
	w := &waiting{user, min(share, b.total), make(chan struct{})}
	release = func() {
		b.mutex.Lock()
		defer b.mutex.Unlock()
		b.add(w.user, -w.share)
		b.admitWaiting()
	}
	b.mutex.Lock()
	b.queue = append(b.queue, w)
	b.admitWaiting()
	b.mutex.Unlock()
	select {
	case <-w.ready:
		return release, nil
	case <-ctx.Done():
	}
	b.mutex.Lock()
	i := slices.Index(b.queue, w)
	if i >= 0 {
		b.queue = slices.Delete(b.queue, i, i+1)
		b.admitWaiting() // those behind it
	}
	b.mutex.Unlock()
	if i < 0 {
		release()
	}
	return nil, context.Cause(ctx)
}

// Reserve takes an amount from the total for something that is not waited for, or gives it back if it is negative. What
// one user may have remains for shares; one that is larger is given while there is no other.
func (b *Budget) Reserve(amount int64) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	b.reserved += amount
	b.admitWaiting()
}

// InUse returns what is taken in all, without what is reserved.
func (b *Budget) InUse() int64 {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.taken
}

// admitWaiting gives shares to those who wait, in their order, as long as the next one fits.
func (b *Budget) admitWaiting() {
	for i := 0; i < len(b.queue); {
		w := b.queue[i]
		if has := b.users[w.user]; has > 0 && has+w.share > b.perUser {
			i++
			continue
		}
		if b.taken > 0 && b.taken+w.share > max(b.total-b.reserved, b.perUser) {
			return
		}
		b.add(w.user, w.share)
		b.queue = slices.Delete(b.queue, i, i+1)
		close(w.ready)
	}
}

// add counts a share of a user, or that it came back.
func (b *Budget) add(user string, share int64) {
	b.taken += share
	if b.users[user] += share; b.users[user] == 0 {
		delete(b.users, user)
	}
}
