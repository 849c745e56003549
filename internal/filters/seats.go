// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"context"
	"errors"
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

	"example.com/extension-apiserver/internal/fairness"
)

const (
	// patience is how long a request waits for a seat before idle requests of other users give way.
	patience = 100 * time.Millisecond
	// mostIdle is how long a request may have waited for its client or for memory when it gives way.
	mostIdle = 300 * time.Millisecond
	// idleSeats of a user need not give way: as many as the library gives to two lists.
	idleSeats = 20
	// idleChecks is how often it is decided who gives way.
	idleChecks = 50 * time.Millisecond
	// userDirect is how many requests of a user that did not come through kube-apiserver have seats, or wait for them,
	// at a time; coreDirect is the number for each core, where that is more. kube-apiserver queues the requests of its
	// users itself.
	userDirect, coreDirect = 4, 2
)

// errGaveWay is the end of a request that waited for its client, or for memory, while others waited for its seats.
var errGaveWay = errors.New("other requests waited for the seats of this request")

// seats implements utilflowcontrol.Interface. The library leaves a request its seats for as long as its client takes to
// read the response, up to a minute for each piece of it. Here requests that wait for their clients, or for memory,
// give way to those of other users. It also lets one user have all seats that nobody else asks for, of more requests
// than there are cores; here a user has few requests at a time that did not come through kube-apiserver.
type seats struct {
	utilflowcontrol.Interface
	fromFrontProxy func(context.Context) bool
	direct         *fairness.Slots // of users
	turns          *Turns

	mutex    sync.Mutex
	taken    map[*seat]struct{}
	waiting  map[*seat]struct{} // for seats
	checking bool
}

// NewSeats returns a flow controller that takes seats from requests which wait for their client or for memory, if
// others wait for them. fromFrontProxy reports whether a request came through kube-apiserver. Lists that have turns
// take one seat.
func NewSeats(flowControl utilflowcontrol.Interface, fromFrontProxy func(context.Context) bool,
	turns *Turns) utilflowcontrol.Interface {
	return newSeats(flowControl, fromFrontProxy, turns)
}

func newSeats(flowControl utilflowcontrol.Interface, fromFrontProxy func(context.Context) bool,
	turns *Turns) *seats {
	return &seats{Interface: flowControl, fromFrontProxy: fromFrontProxy, turns: turns,
		direct: fairness.New(fairness.Limits{
			PerKey: max(userDirect, coreDirect*runtime.GOMAXPROCS(0)), Queued: maxRequests}),
		taken: map[*seat]struct{}{}, waiting: map[*seat]struct{}{}}
}

// seat is what a request has of its priority level, or waits for.
type seat struct {
	level, user string
	width       int
	since       time.Time // when it began to wait for its seats, or took them

	mutex     sync.Mutex
	idle      time.Duration // without the wait that goes on
	idleSince time.Time
	interrupt func() // ends the wait that goes on, if there is one
	finished  bool
	left      chan struct{} // closed when the request goes on without its seats
}

type seatKey struct{}

// withSeat returns a context in which the request counts what it waits for.
func withSeat(ctx context.Context) context.Context {
	return context.WithValue(ctx, seatKey{}, &seat{width: 1, left: make(chan struct{})})
}

// leaveSeat gives the seats of a log back, which goes on without them. Call it once.
func leaveSeat(ctx context.Context) {
	if s, ok := ctx.Value(seatKey{}).(*seat); ok {
		close(s.left)
	}
}

// waits notes that a request waits for its client, or for memory, until done is called. interrupt ends the wait. It
// must not block.
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

// neverInterrupt is for the end of a request: what the library's timeout left behind may still wait, on a connection
// that serves others.
func neverInterrupt(ctx context.Context) {
	if s, ok := ctx.Value(seatKey{}).(*seat); ok {
		s.mutex.Lock()
		defer s.mutex.Unlock()
		s.finished, s.interrupt = true, nil
	}
}

// waitsNow returns whether the request is waiting for its client or for memory.
func (s *seat) waitsNow() bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.interrupt != nil
}

// mayGiveWay returns whether the request waits, and has waited for long.
func (s *seat) mayGiveWay() bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.interrupt != nil && s.idle+time.Since(s.idleSince) >= mostIdle
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
	seat.user = digest.User.GetName()
	if isLog(digest.RequestInfo) {
		var wait func()
		execFn, wait = apart(seat, execFn)
		defer wait()
	}
	// Watches have limits of their own. Requests without credentials are limited by their address.
	if !s.fromFrontProxy(ctx) && digest.RequestInfo.Verb != "watch" && seat.user != user.Anonymous {
		release, err := s.direct.Take(ctx, seat.user)
		if err == nil {
			defer release()
		} else {
			// The library classifies the request, and responds with 429 since it is not executed.
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
			estimate.InitialSeats = 1 // others need not wait for the seats of those that wait for their turns
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

// apart returns a function that returns when the request leaves its seats or ends, and another that waits for its end.
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

// queue notes that a request waits for its seats, or does not any more.
func (s *seats) queue(seat *seat, inQueue bool) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if !inQueue {
		delete(s.waiting, seat)
		return
	}
	seat.since = time.Now()
	s.waiting[seat] = struct{}{}
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

// check ends idle requests for as long as others wait for seats.
func (s *seats) check() {
	ticker := time.NewTicker(idleChecks)
	defer ticker.Stop()
	for range ticker.C {
		s.mutex.Lock()
		s.checking = len(s.waiting) > 0
		more, idle := s.checking, s.idle()
		s.mutex.Unlock()
		for _, seat := range idle {
			klog.InfoS("Ending a request that waits for its client or for memory, because other requests wait for its seats",
				"user", seat.user,
				"priorityLevel", seat.level, "seats", seat.width)
			seat.giveWay()
		}
		if !more {
			return
		}
	}
}

// idle returns the requests that give way: of each user the ones that began last, and leave idleSeats.
func (s *seats) idle() []*seat {
	type flow struct{ level, user string }
	impatient := map[string]map[string]bool{} // the users of each priority level
	for seat := range s.waiting {
		if time.Since(seat.since) >= patience {
			if impatient[seat.level] == nil {
				impatient[seat.level] = map[string]bool{}
			}
			impatient[seat.level][seat.user] = true
		}
	}
	flows := map[flow][]*seat{}
	for seat := range s.taken {
		users := impatient[seat.level]
		if len(users) > 1 || len(users) == 1 && !users[seat.user] {
			if seat.mayGiveWay() {
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
