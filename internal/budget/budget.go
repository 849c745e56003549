// SPDX-License-Identifier: Apache-2.0

// Package budget shares an amount, such as bytes of memory, among the requests of many users.
package budget

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Budget gives the next share to the waiting user with the lowest use, as in start-time fair
// queueing. The use of a user is the sum of its shares multiplied by the time for which it has held
// them. For a new user, it starts at the present use of the others. Requests of one user are
// served in order. A user who has reached the limit of a user is skipped. While less than the total is
// available, that limit is lower in proportion.
type Budget struct {
	total, perUser int64
	free           func(taken int64) int64 // or nil

	mutex    sync.Mutex
	taken    int64
	reserved int64
	users    map[string]*userShares // users that have a share or wait for one
	queue    []*waiting
	now      float64 // highest use of a user when it got a share
}

// userShares holds the shares of a user. waits is the number of its waiting requests. used is the
// sum of its shares until since, multiplied by the seconds for which it held them, plus the use of the
// others when it arrived.
type userShares struct {
	taken int64
	waits int
	used  float64
	since time.Time
}

// use returns the use of the user at a time.
func (u *userShares) use(now time.Time) float64 {
	return u.used + float64(u.taken)*now.Sub(u.since).Seconds()
}

// add changes the sum of the user's shares.
func (u *userShares) add(share int64) {
	now := time.Now()
	u.used, u.since = u.use(now), now
	u.taken += share
}

// waiting is a request that waits for a share. ready is closed when it gets the share.
type waiting struct {
	user  string
	share int64
	ready chan struct{}
}

// New returns a Budget of total. A user may have perUser of it, or one share that is larger.
func New(total, perUser int64) *Budget {
	return &Budget{total: total, perUser: perUser, users: map[string]*userShares{}}
}

// LimitTo limits the sum of all shares to what free returns, in addition to the total. free gets
// the present sum, and is called by one goroutine at a time. The limit of one user remains
// available. Call LimitTo before Take.
func (b *Budget) LimitTo(free func(taken int64) int64) { b.free = free }

// Take waits for a share until the context ends. A share that is larger than the total counts as
// the total. Call release, once, to return it. A request that has a share must not take another,
// because it might wait for itself.
func (b *Budget) Take(ctx context.Context, user string, share int64) (release func(), err error) {
	w, release := b.enqueue(user, share)
	select {
	case <-w.ready:
		return release, nil
	case <-ctx.Done():
	}
	if !b.cancel(w) {
		release()
	}
	return nil, context.Cause(ctx)
}

// TryTake takes a share if the user need not wait for it.
func (b *Budget) TryTake(user string, share int64) (release func(), ok bool) {
	w, release := b.enqueue(user, share)
	return release, !b.cancel(w)
}

// enqueue adds a waiting request, and gives it its share if it need not wait.
func (b *Budget) enqueue(user string, share int64) (w *waiting, release func()) {
	w = &waiting{user: user, share: min(share, b.total), ready: make(chan struct{})}
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if b.users[user] == nil {
		b.users[user] = &userShares{used: b.now, since: time.Now()}
	}
	b.users[user].waits++
	b.queue = append(b.queue, w)
	b.admitWaiting()
	return w, func() {
		b.mutex.Lock()
		defer b.mutex.Unlock()
		b.taken -= w.share
		b.users[user].add(-w.share)
		b.forget(user)
		b.admitWaiting()
	}
}

// cancel removes a waiting request. It returns false if the request has got its share.
func (b *Budget) cancel(w *waiting) bool {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	i := slices.Index(b.queue, w)
	if i < 0 {
		return false
	}
	b.leaveQueue(i)
	b.forget(w.user)
	b.admitWaiting() // requests behind it
	return true
}

// Reserve takes an amount from the total for a purpose that does not wait, or returns it if amount
// is negative. The limit of one user remains available for shares. A larger share is given while
// there is no other.
func (b *Budget) Reserve(amount int64) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	b.reserved += amount
	b.admitWaiting()
}

// InUse returns the total of all shares, without reserved amounts.
func (b *Budget) InUse() int64 {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.taken
}

// Held returns the total of the shares of a user.
func (b *Budget) Held(user string) int64 {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if u := b.users[user]; u != nil {
		return u.taken
	}
	return 0
}

// AtLimit reports whether a user cannot have a share before returning another.
func (b *Budget) AtLimit(user string, share int64) bool {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	u := b.users[user]
	return u != nil && b.atLimit(u, share, b.available())
}

func (b *Budget) atLimit(user *userShares, share, available int64) bool {
	limit := int64(float64(b.perUser) * float64(available) / float64(b.total))
	return user.taken > 0 && user.taken+share > min(limit, b.perUser)
}

// admitWaiting gives shares to waiting requests as long as the next one fits.
func (b *Budget) admitWaiting() {
	for {
		now, available := time.Now(), b.available()
		i := b.next(now, available)
		if i < 0 || b.taken > 0 && b.taken+b.queue[i].share > available {
			return
		}
		w := b.queue[i]
		user := b.users[w.user]
		b.now = max(b.now, user.use(now))
		b.taken += w.share
		user.add(w.share)
		b.leaveQueue(i)
		close(w.ready)
	}
}

// available returns the present limit of the sum of all shares.
func (b *Budget) available() int64 {
	available := b.total - b.reserved
	if b.free != nil {
		available = min(available, b.free(b.taken))
	}
	return max(available, b.perUser)
}

// next returns the index in the queue of the next request, or -1 if there is none.
func (b *Budget) next(now time.Time, available int64) int {
	next := -1
	for i, w := range b.queue {
		user := b.users[w.user]
		if b.atLimit(user, w.share, available) {
			continue
		}
		if next < 0 || user.use(now) < b.users[b.queue[next].user].use(now) {
			next = i
		}
	}
	return next
}

func (b *Budget) leaveQueue(i int) {
	b.users[b.queue[i].user].waits--
	b.queue = slices.Delete(b.queue, i, i+1)
}

// forget deletes the entry of a user, unless the user has a share or a waiting request.
func (b *Budget) forget(name string) {
	if user := b.users[name]; user.taken == 0 && user.waits == 0 {
		delete(b.users, name)
	}
}
