// SPDX-License-Identifier: Apache-2.0

// Package budget shares an amount, such as bytes of memory, among the requests of many users.
package budget

import (
	"context"
	"slices"
	"sync"
)

// Budget gives out shares to users in turn, and to each in the order in which it asked for them. A user who has as much
// as one may have is passed over.
type Budget struct {
	total, perUser int64

	mutex    sync.Mutex
	taken    int64
	reserved int64
	users    map[string]*userShares // who have a share or wait for one
	queue    []*waiting
	given    int // shares, so far
}

// userShares are those of a user. waits is how many it waits for; last is when it got one, as a number of shares.
type userShares struct {
	taken       int64
	waits, last int
}

// waiting is a request that waits for a share. ready is closed when it has it.
type waiting struct {
	user  string
	share int64
	ready chan struct{}
}

// New returns a Budget of total. A user may have perUser of it, or one share that is larger.
func New(total, perUser int64) *Budget {
	return &Budget{total: total, perUser: perUser, users: map[string]*userShares{}}
}

// Take waits for a share until the context ends. One that is larger than the total counts for the total. Call release,
// once, to give it back. A request that has a share must not ask for another: it might wait for itself.
func (b *Budget) Take(ctx context.Context, user string, share int64) (release func(), err error) {
	w := &waiting{user, min(share, b.total), make(chan struct{})}
	release = func() {
		b.mutex.Lock()
		defer b.mutex.Unlock()
		b.taken -= w.share
		b.users[user].taken -= w.share
		b.forget(user)
		b.admitWaiting()
	}
	b.mutex.Lock()
	if b.users[user] == nil {
		b.users[user] = &userShares{last: b.given - 1} // before the user who has just got one
	}
	b.users[user].waits++
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
		b.leaveQueue(i)
		b.forget(user)
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

// admitWaiting gives shares to those who wait as long as the next one fits.
func (b *Budget) admitWaiting() {
	for i := b.next(); i >= 0; i = b.next() {
		w := b.queue[i]
		if b.taken > 0 && b.taken+w.share > max(b.total-b.reserved, b.perUser) {
			return
		}
		b.given++
		b.taken += w.share
		user := b.users[w.user]
		user.taken += w.share
		user.last = b.given
		b.leaveQueue(i)
		close(w.ready)
	}
}

// next returns the place in the queue of who is next, or -1.
func (b *Budget) next() int {
	next := -1
	for i, w := range b.queue {
		user := b.users[w.user]
		if user.taken > 0 && user.taken+w.share > b.perUser {
			continue
		}
		if next < 0 || user.last < b.users[b.queue[next].user].last {
			next = i
		}
	}
	return next
}

func (b *Budget) leaveQueue(i int) {
	b.users[b.queue[i].user].waits--
	b.queue = slices.Delete(b.queue, i, i+1)
}

// forget forgets a user who has no share and waits for none.
func (b *Budget) forget(name string) {
	if user := b.users[name]; user.taken == 0 && user.waits == 0 {
		delete(b.users, name)
	}
}
