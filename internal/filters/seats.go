// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"context"
	"errors"
	"maps"
	"runtime"
	"slices"
	"sync"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"
	"k8s.io/apiserver/pkg/util/flowcontrol/fairqueuing"
	flowcontrolrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"
	"k8s.io/klog/v2"

	"example.com/extension-apiserver/internal/budget"
	"example.com/extension-apiserver/internal/fairness"
)

const (
	// patience is how long a request waits for a seat, or for memory, before idle requests of other
	// users give way.
	patience = 100 * time.Millisecond
	// mostIdle is how long a request may wait for its client or for memory before it can be made
	// to give way.
	mostIdle = 300 * time.Millisecond
	// idleSeats is the number of seats of a user that need not give way: as many as the library
	// gives to two lists.
	idleSeats = 20
	// idleChecks is the interval at which the requests that give way are selected.
	idleChecks = 50 * time.Millisecond
	// userDirect is how many requests of a user that did not come through kube-apiserver have
	// seats, or wait for them, at a time. coreDirect is the number for each core, and applies if
	// it gives more. All such users together have twice as many, and each of them one more.
	// kube-apiserver queues the requests of its users itself.
	userDirect, coreDirect = 4, 2
)

// errGaveWay ends a request that waited for its client, or for memory, while others waited for its
// seats or its memory.
var errGaveWay = errors.New("other requests waited for the seats or the memory of this request")

// seats implements utilflowcontrol.Interface. The library leaves a request its seats for as long
// as its client takes to read the response, up to a minute for each part of it. Here, requests
// that wait for their clients or for memory give way to requests of other users.
//
// The library also lets one user have all seats that no other user requests, for more requests
// than there are cores. Here, a user has few concurrent requests that did not come through
// kube-apiserver.
type seats struct {
	utilflowcontrol.Interface
	fromFrontProxy func(context.Context) bool
	direct         *fairness.Slots
	turns          *Turns

	mutex    sync.Mutex
	taken    map[*seat]struct{}
	waiting  map[*seat]struct{} // for seats
	holders  map[*seat]struct{} // have a share of the memory, also when they have left their seats
	starving map[*seat]need     // have waited for memory longer than patience
	checking bool
}

// NewSeats returns a flow controller that takes seats from requests that wait for their client or
// for memory, if others wait for the seats. fromFrontProxy reports whether a request came through
// kube-apiserver. Lists that need a turn start with one seat.
func NewSeats(flowControl utilflowcontrol.Interface, fromFrontProxy func(context.Context) bool,
	turns *Turns) utilflowcontrol.Interface {
	return newSeats(flowControl, fromFrontProxy, turns)
}

func newSeats(flowControl utilflowcontrol.Interface, fromFrontProxy func(context.Context) bool,
	turns *Turns) *seats {
	direct := max(userDirect, coreDirect*runtime.GOMAXPROCS(0))
	return &seats{Interface: flowControl, fromFrontProxy: fromFrontProxy, turns: turns,
		direct: fairness.New(fairness.Limits{PerKey: direct, Queued: maxRequests, Total: 2 * direct, Reserved: 1}),
		taken:  map[*seat]struct{}{}, waiting: map[*seat]struct{}{}, holders: map[*seat]struct{}{},
		starving: map[*seat]need{}}
}

// seat describes the seats of a priority level that a request has or waits for.
type seat struct {
	all         *seats
	level, user string
	width       int
	since       time.Time // start of the wait for seats, or time at which it took them

	mutex     sync.Mutex
	idle      time.Duration // without the current wait
	idleSince time.Time
	interrupt func() // ends the current wait; nil if there is none
	finished  bool
	left      chan struct{} // closed when the request continues without its seats
}

// need is a share of the memory for which a request waits.
type need struct {
	memory *budget.Budget
	share  int64
}

type seatKey struct{}

// withSeat returns a context that records how long the request waits.
func withSeat(ctx context.Context) context.Context {
	return context.WithValue(ctx, seatKey{}, &seat{width: 1, left: make(chan struct{})})
}

// leaveSeat gives up the seats of a log request, which continues without them. Call it once.
func leaveSeat(ctx context.Context) {
	if s, ok := ctx.Value(seatKey{}).(*seat); ok {
		close(s.left)
	}
}

// waits records that a request waits for its client, or for memory, until done is called.
// interrupt ends the wait. It must not block.
func waits(ctx context.Context, interrupt func()) (done func()) {
	s, ok := ctx.Value(seatKey{}).(*seat)
	if !ok {
		return func() {}
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.finished {
		return func() {}
	}
	s.idleSince, s.interrupt = time.Now(), interrupt
	return func() {
		s.mutex.Lock()
		defer s.mutex.Unlock()
		s.idle += time.Since(s.idleSince)
		s.interrupt = nil
	}
}

// waitsForMemory is waits for a request that waits for a share of the memory. The time does not count
// for the waits that follow.
func waitsForMemory(ctx context.Context, share need, interrupt func()) (done func()) {
	ended := waits(ctx, interrupt)
	seat, ok := ctx.Value(seatKey{}).(*seat)
	if !ok || seat.all == nil {
		return ended
	}
	all, over := seat.all, false
	timer := time.AfterFunc(patience, func() {
		all.mutex.Lock()
		defer all.mutex.Unlock()
		if !over {
			all.starving[seat] = share
			all.startCheck()
		}
	})
	return func() {
		timer.Stop()
		all.mutex.Lock()
		over = true
		delete(all.starving, seat)
		all.mutex.Unlock()
		ended()
		seat.mutex.Lock()
		defer seat.mutex.Unlock()
		seat.idle = 0
	}
}

// hasMemory records whether a request has a share of the memory.
func hasMemory(ctx context.Context, has bool) {
	s, ok := ctx.Value(seatKey{}).(*seat)
	if !ok || s.all == nil {
		return
	}
	s.all.mutex.Lock()
	defer s.all.mutex.Unlock()
	if delete(s.all.holders, s); has {
		s.all.holders[s] = struct{}{}
	}
}

// neverInterrupt runs at the end of a request. A goroutine that the library's timeout left behind
// may still wait, on a connection that serves other requests, and must not be interrupted.
func neverInterrupt(ctx context.Context) {
	if s, ok := ctx.Value(seatKey{}).(*seat); ok {
		s.mutex.Lock()
		defer s.mutex.Unlock()
		s.finished, s.interrupt = true, nil
	}
}

// waitsNow reports whether the request waits for its client or for memory.
func (s *seat) waitsNow() bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.interrupt != nil
}

// waited returns how long the request has waited for its client or for memory. It returns 0 if it
// does not wait, or not long enough to give way.
func (s *seat) waited() time.Duration {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.interrupt == nil {
		return 0
	}
	if idle := s.idle + time.Since(s.idleSince); idle >= mostIdle {
		return idle
	}
	return 0
}

func (s *seat) giveWay() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.interrupt != nil {
		s.interrupt()
	}
}

// Handle implements utilflowcontrol.Interface.
func (s *seats) Handle(ctx context.Context, digest utilflowcontrol.RequestDigest,
	noteFn func(*flowcontrolv1.FlowSchema, *flowcontrolv1.PriorityLevelConfiguration, string),
	workEstimator func() flowcontrolrequest.WorkEstimate, queueNoteFn fairqueuing.QueueNoteFn, execFn func()) {
	seat, ok := ctx.Value(seatKey{}).(*seat)
	if !ok {
		s.Interface.Handle(ctx, digest, noteFn, workEstimator, queueNoteFn, execFn)
		return
	}
	seat.all, seat.user = s, digest.User.GetName()
	if isLog(digest.RequestInfo) {
		var wait func()
		execFn, wait = apart(seat, execFn)
		defer wait()
	}
	// Watches have their own limits. Requests without credentials are limited by their address.
	if !s.fromFrontProxy(ctx) && digest.RequestInfo.Verb != "watch" && seat.user != user.Anonymous {
		release, err := s.direct.Take(ctx, seat.user)
		if err == nil {
			defer release()
		} else {
			// The library classifies the request, and responds with 429 because it is not
			// executed.
			execFn = func() {}
		}
	}
	s.Interface.Handle(ctx, digest, func(schema *flowcontrolv1.FlowSchema,
		level *flowcontrolv1.PriorityLevelConfiguration, distinguisher string) {
		seat.level = level.Name
		noteFn(schema, level, distinguisher)
	}, func() flowcontrolrequest.WorkEstimate {
		estimate := workEstimator()
		seat.width = estimate.MaxSeats()
		if s.turns.needed(digest.RequestInfo) {
			estimate.InitialSeats = 1 // others need not wait for the seats of lists that wait for their turns
		}
		return estimate
	}, func(inQueue bool) {
		s.queue(seat, inQueue)
		queueNoteFn(inQueue)
	}, func() {
		s.take(seat)
		defer s.leave(seat)
		execFn()
	})
}

// apart returns run, which executes the request and returns when the request leaves its seats or
// ends, and wait, which waits for the end of the request and repeats its panic.
func apart(seat *seat, execFn func()) (run, wait func()) {
	ended := make(chan any, 1)
	running := false
	return func() {
			running = true
			go func() {
				defer func() { ended <- recover() }()
				execFn()
			}()
			select {
			case <-seat.left:
			case reason := <-ended:
				ended <- reason
			}
		}, func() {
			if !running {
				return
			}
			if reason := <-ended; reason != nil {
				panic(reason)
			}
		}
}

// queue records whether a request waits for its seats.
func (s *seats) queue(seat *seat, inQueue bool) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if !inQueue {
		delete(s.waiting, seat)
		return
	}
	seat.since = time.Now()
	s.waiting[seat] = struct{}{}
	s.startCheck()
}

// startCheck starts check, unless it runs. The caller holds the lock.
func (s *seats) startCheck() {
	if !s.checking {
		s.checking = true
		go s.check()
	}
}

func (s *seats) take(seat *seat) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	seat.since = time.Now()
	s.taken[seat] = struct{}{}
}

func (s *seats) leave(seat *seat) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	delete(s.taken, seat)
}

// check ends idle requests as long as others wait for seats or memory.
func (s *seats) check() {
	ticker := time.NewTicker(idleChecks)
	defer ticker.Stop()
	for range ticker.C {
		s.mutex.Lock()
		s.checking = len(s.waiting)+len(s.starving) > 0
		more, idle := s.checking, s.idle()
		if holder := s.idleHolder(); holder != nil && !slices.Contains(idle, holder) {
			idle = append(idle, holder)
		}
		s.mutex.Unlock()
		for _, seat := range idle {
			klog.InfoS("Ending a request that waits for its client or for memory, because other requests wait",
				"user", seat.user, "priorityLevel", seat.level, "seats", seat.width)
			seat.giveWay()
		}
		if !more {
			return
		}
	}
}

// users is a set of users that wait.
type users map[string]bool

// others reports whether a user other than the given one waits.
func (u users) others(user string) bool { return len(u) > 1 || len(u) == 1 && !u[user] }

// idle returns the requests that give way to those that wait for seats: of each user the latest
// ones, without those that hold the first idleSeats seats.
func (s *seats) idle() []*seat {
	type flow struct{ level, user string }
	impatient := map[string]users{} // by priority level
	for seat := range s.waiting {
		if time.Since(seat.since) >= patience {
			if impatient[seat.level] == nil {
				impatient[seat.level] = users{}
			}
			impatient[seat.level][seat.user] = true
		}
	}
	flows := map[flow][]*seat{}
	for seat := range s.taken {
		if impatient[seat.level].others(seat.user) {
			if seat.waited() > 0 {
				flows[flow{seat.level, seat.user}] = append(flows[flow{seat.level, seat.user}], seat)
			}
		}
	}
	var all []*seat
	for _, of := range flows {
		slices.SortFunc(of, func(a, b *seat) int { return a.since.Compare(b.since) })
		left := idleSeats
		for _, seat := range of {
			if left -= seat.width; left < 0 {
				all = append(all, seat)
			}
		}
	}
	return all
}

// idleHolder returns the request that has waited for its client for the longest time while its user
// has more memory than another user would have who waits for memory, or nil. A user who waits
// because of the limit of a user takes memory from no other.
func (s *seats) idleHolder() (holder *seat) {
	starving := maps.Clone(s.starving)
	maps.DeleteFunc(starving, func(other *seat, needed need) bool {
		return needed.memory.AtLimit(other.user, needed.share)
	})
	longest := time.Duration(0)
	for seat := range s.holders {
		idle := seat.waited()
		if idle <= longest {
			continue
		}
		for other, needed := range starving {
			if other.user != seat.user &&
				needed.memory.Held(other.user)+needed.share < needed.memory.Held(seat.user) {
				holder, longest = seat, idle
				break
			}
		}
	}
	return holder
}
