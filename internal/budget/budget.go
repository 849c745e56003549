// SPDX-License-Identifier: Apache-2.0

// Package budget shares an amount, such as bytes of memory, among the requests of many users.
package budget

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Budget gives the next share to the user who had least for the shortest time since it began to wait, as in start-time
// fair queueing, and to each in the order in which it asked. A user who has as much as one may have is passed over.
type Budget struct {
	total, perUser int64

	mutex    sync.Mutex
	taken    int64
	reserved int64
	users    map[string]*userShares // who have a share or wait for one
	queue    []*waiting
	now      float64 // the used of the user who got the last share, before that
}

// userShares are those of a user. waits is how many it waits for; used is the sum of its shares times the seconds that
// it had them, and of what others had used when it came.
type userShares struct {
	taken int64
	waits int
	used  float64
}

// waiting is a request that waits for a share. ready is closed when it has it, and since is when that was.
type waiting struct {
	user  string
	share int64
	ready chan struct{}
	since time.Time
}

// New returns a Budget of total. A user may have perUser of it, or one share that is larger.
func New(total, perUser int64) *Budget {
	return &Budget{total: total, perUser: perUser, users: map[string]*userShares{}}
}

// Take waits for a share until the context ends. One that is larger than the total counts for the total. Call release,
// once, to give it back. A request that has a share must not ask for another: it might wait for itself.
func (b *Budget) Take(ctx context.Context, user string, share int64) (release func(), err error) {
	w := &waiting{user: user, share: min(share, b.total), ready: make(chan struct{})}
	release = func() {
		b.mutex.Lock()
		defer b.mutex.Unlock()
		b.taken -= w.share
		b.users[user].taken -= w.share
		b.users[user].used += float64(w.share) * time.Since(w.since).Seconds()
		b.forget(user)
		b.admitWaiting()
	}
	b.mutex.Lock()
	if b.users[user] == nil {
		b.users[user] = &userShares{used: b.now}
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
		b.taken += w.share
		user := b.users[w.user]
		user.taken += w.share
		b.now = max(b.now, user.used)
		w.since = time.Now()
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
		if next < 0 || user.used < b.users[b.queue[next].user].used {
			next = i
		}
	}
	return next
}

func (b *Budget) leaveQueue(i int) {
	b.users[b.queue[i].user].waits--
	b.queue = slices.Delete(b.queue, i, i+1)
}

// forget deletes the entry of a user, unless the user has a share or a request that waits.
func (b *Budget) forget(name string) {
	if user := b.users[name]; user.taken == 0 && user.waits == 0 {
		delete(b.users, name)
	}
}
