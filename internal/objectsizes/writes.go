// SPDX-License-Identifier: Apache-2.0

package objectsizes

import (
	"context"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage/cacher"
)

// writes limits how many bytes of large objects are stored within the time for which the watch
// cache keeps events.
type writes struct {
	all   *rate.Limiter
	users map[string]*rate.Limiter
}

// newLimiter returns a limiter of size bytes for each window of the watch cache.
func newLimiter(size int64) *rate.Limiter {
	return rate.NewLimiter(rate.Limit(float64(size)/cacher.DefaultEventFreshDuration.Seconds()), int(size))
}

// LimitWrites sets how many bytes of large objects, of more than 64 KiB, may be stored of each
// resource within 75 s, by all users and by each user. Call it before the server serves requests.
// Without it, there is no limit.
func (s *Sizes) LimitWrites(all, perUser int64) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.allWrites, s.userWrites = all, perUser
}

// WriteDelay returns how long the user has to wait before storing another large object of the
// resource.
func (s *Sizes) WriteDelay(of schema.GroupResource, user string) time.Duration {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	r := s.resources[of]
	if r == nil || r.writes == nil {
		return 0
	}
	delay := delayOf(r.writes.all)
	if limiter := r.writes.users[user]; limiter != nil {
		delay = max(delay, delayOf(limiter))
	}
	return delay
}

// delayOf returns the time until the limiter has recovered the bytes that were taken in excess.
func delayOf(limiter *rate.Limiter) time.Duration {
	if tokens := limiter.Tokens(); tokens < 0 {
		return time.Duration(-tokens / float64(limiter.Limit()) * float64(time.Second))
	}
	return 0
}

// countWrite takes the bytes of a large object that a request stores, even if fewer are available:
// the size that a patch stores is not known before.
func (s *Sizes) countWrite(ctx context.Context, r *resource, size int64) {
	if s.allWrites == 0 {
		return
	}
	if r.writes == nil {
		r.writes = &writes{newLimiter(s.allWrites), map[string]*rate.Limiter{}}
	}
	now := time.Now()
	r.writes.all.ReserveN(now, int(min(size, s.allWrites)))
	user, ok := genericapirequest.UserFrom(ctx)
	if !ok {
		return
	}
	limiter := r.writes.users[user.GetName()]
	if limiter == nil {
		for name, other := range r.writes.users {
			if other.TokensAt(now) >= float64(other.Burst()) {
				delete(r.writes.users, name)
			}
		}
		limiter = newLimiter(s.userWrites)
		r.writes.users[user.GetName()] = limiter
	}
	limiter.ReserveN(now, int(min(size, s.userWrites)))
}
