// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"
	"k8s.io/apiserver/pkg/util/flowcontrol/fairqueuing"
	flowcontrolrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"

	"example.com/extension-apiserver/internal/budget"
	"example.com/extension-apiserver/internal/objectsizes"
)

// oneLevel is a priority level that has a seat for each request until it is full.
type oneLevel struct {
	utilflowcontrol.Interface
	full bool
}

func (l *oneLevel) Handle(ctx context.Context, _ utilflowcontrol.RequestDigest,
	noteFn func(*flowcontrolv1.FlowSchema, *flowcontrolv1.PriorityLevelConfiguration, string),
	workEstimator func() flowcontrolrequest.WorkEstimate, queueNoteFn fairqueuing.QueueNoteFn, execFn func()) {
	noteFn(nil, &flowcontrolv1.PriorityLevelConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "level"}}, "")
	workEstimator()
	if l.full {
		queueNoteFn(true)
		<-ctx.Done()
		queueNoteFn(false)
		return
	}
	execFn()
}

// TestEndWaitingRequests checks that requests that wait for their clients end while others wait for
// seats, the latest ones first. Requests that work do not end, nor does the first request of a
// user.
func TestEndWaitingRequests(t *testing.T) {
	type request struct {
		user  string
		width uint64
		busy  bool          // works all the time
		after time.Duration // start of the wait for its client, before one second
	}
	for name, tc := range map[string]struct {
		running []request
		waiting []string
		want    []int // indexes of the running requests that give way
	}{
		"no user waits":       {[]request{{user: "a", width: 20}, {user: "a", width: 20}}, nil, nil},
		"the same user waits": {[]request{{user: "a", width: 20}, {user: "a", width: 20}}, []string{"a"}, nil},
		"another waits": {[]request{{user: "a", width: 20}, {user: "a", width: 20}},
			[]string{"b"}, []int{1}},
		"both wait": {[]request{{user: "a", width: 20}, {user: "a", width: 20}},
			[]string{"a", "b"}, []int{1}},
		"one is not much":          {[]request{{user: "a", width: 20}}, []string{"b"}, nil},
		"one is wider than others": {[]request{{user: "a", width: 21}}, []string{"b"}, []int{0}},
		"22 narrow ones":           {slices.Repeat([]request{{user: "a", width: 1}}, 22), []string{"b"}, []int{20, 21}},
		"of two users": {[]request{{user: "a", width: 20}, {user: "b", width: 20}, {user: "b", width: 1}},
			[]string{"c"}, []int{2}},
		"those that work": {[]request{{user: "a", width: 20, busy: true}, {user: "a", width: 20, busy: true}},
			[]string{"b"}, nil},
		"one that works counts for nothing": {[]request{{user: "a", width: 20, busy: true}, {user: "a", width: 20},
			{user: "a", width: 20}},
			[]string{"b"}, []int{2}},
		"one that waits for a moment": {[]request{{user: "a", width: 20},
			{user: "a", width: 20, after: 900 * time.Millisecond}}, []string{"b"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				level := &oneLevel{}
				s := newSeats(level, func(context.Context) bool { return true }, NewTurns(noCounts, objectsizes.New()))
				ctx, end := context.WithTimeout(t.Context(), time.Second)
				defer end()
				send := func(name string, width uint64, serve func(context.Context)) {
					ctx := withSeat(ctx)
					go s.Handle(ctx, utilflowcontrol.RequestDigest{User: &user.DefaultInfo{Name: name}},
						func(*flowcontrolv1.FlowSchema, *flowcontrolv1.PriorityLevelConfiguration, string) {},
						func() flowcontrolrequest.WorkEstimate { return flowcontrolrequest.WorkEstimate{InitialSeats: width} },
						func(bool) {}, func() { serve(ctx) })
					synctest.Wait()
					<-time.After(time.Millisecond)
				}
				gaveWay := make(chan int, len(tc.running))
				for i, r := range tc.running {
					send(r.user, r.width, func(ctx context.Context) {
						<-time.After(r.after)
						if !r.busy {
							ended := make(chan struct{})
							defer waits(ctx, func() { gaveWay <- i; close(ended) })()
							select {
							case <-ended:
								return
							case <-ctx.Done():
							}
						}
						<-ctx.Done()
					})
				}
				level.full = true
				for _, name := range tc.waiting {
					send(name, 1, func(context.Context) { t.Error("it has a seat") })
				}
				<-ctx.Done()
				synctest.Wait()
				close(gaveWay)
				var got []int
				for i := range gaveWay {
					got = append(got, i)
				}
				slices.Sort(got)
				if fmt.Sprint(got) != fmt.Sprint(tc.want) {
					t.Errorf("%v gave way, want %v", got, tc.want)
				}
				<-time.After(2 * idleChecks)
				s.mutex.Lock()
				defer s.mutex.Unlock()
				if len(s.taken)+len(s.waiting) > 0 || s.checking {
					t.Errorf("%d requests have seats and %d wait, and it is checked: %v; want none", len(s.taken),
						len(s.waiting), s.checking)
				}
			})
		})
	}
}

// TestMemoryHoldersGiveWay checks that requests that wait for their client give up their share of the
// memory if a user waits for one who would have less: first those that have waited longest.
func TestMemoryHoldersGiveWay(t *testing.T) {
	for name, tc := range map[string]struct {
		user    string
		share   int64
		gaveWay []int
	}{
		"the same user waits":                             {"a", 1, nil},
		"another waits":                                   {"b", 1, []int{1, 0}},
		"another would have as much":                      {"b", 4, nil},
		"another would have as much with its other share": {"c", 2, nil},
		"another has a share":                             {"c", 1, []int{1}}, // then a has as much as c would have
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSeats(&oneLevel{}, func(context.Context) bool { return true }, NewTurns(noCounts, objectsizes.New()))
				memory := budget.New(6, 5)
				ctx, end := context.WithTimeout(t.Context(), 2*time.Second)
				defer end()
				send := func(name string, serve func(context.Context)) {
					ctx := withSeat(ctx)
					go s.Handle(ctx, utilflowcontrol.RequestDigest{User: &user.DefaultInfo{Name: name}},
						func(*flowcontrolv1.FlowSchema, *flowcontrolv1.PriorityLevelConfiguration, string) {},
						func() flowcontrolrequest.WorkEstimate { return flowcontrolrequest.WorkEstimate{InitialSeats: 1} },
						func(bool) {}, func() { serve(ctx) })
					synctest.Wait()
				}
				var gaveWay []int
				hold := func(user string, i int, share int64, waitsAfter time.Duration) {
					send(user, func(ctx context.Context) {
						if share > 0 {
							release, err := memory.Take(ctx, user, share)
							if err != nil {
								t.Error(err)
								return
							}
							hasMemory(ctx, true)
							defer release()
							defer hasMemory(ctx, false)
						}
						select {
						case <-time.After(waitsAfter):
						case <-ctx.Done():
							return
						}
						ended := make(chan struct{})
						defer waits(ctx, sync.OnceFunc(func() { gaveWay = append(gaveWay, i); close(ended) }))()
						select {
						case <-ended:
						case <-ctx.Done():
						}
					})
				}
				hold("a", 0, 2, 100*time.Millisecond)
				hold("a", 1, 1, 0)
				hold("a", 2, 0, 0)         // holds no memory
				hold("a", 3, 1, time.Hour) // works
				hold("c", 4, 2, time.Hour)
				send(tc.user, func(ctx context.Context) {
					defer waitsForMemory(ctx, need{memory, tc.share}, func() {})()
					<-ctx.Done()
				})
				<-ctx.Done()
				<-time.After(2 * idleChecks)
				synctest.Wait()
				if !slices.Equal(gaveWay, tc.gaveWay) {
					t.Errorf("%v gave way, want %v", gaveWay, tc.gaveWay)
				}
				s.mutex.Lock()
				defer s.mutex.Unlock()
				if len(s.holders)+len(s.starving) > 0 || s.checking {
					t.Errorf("%d requests hold memory and %d starve, and it is checked: %v; want none", len(s.holders),
						len(s.starving), s.checking)
				}
			})
		})
	}
}

var noCounts = flowcontrolrequest.NewStorageObjectCountTracker()

// TestDirectRequests checks that a user has a limited number of concurrent requests that did not
// come through kube-apiserver. Further requests wait, and are not executed if their time ends.
func TestDirectRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		proxied := false
		s := newSeats(&oneLevel{}, func(context.Context) bool { return proxied }, NewTurns(noCounts, objectsizes.New()))
		places := max(userDirect, coreDirect*runtime.GOMAXPROCS(0))
		send := func(ctx context.Context, name, verb string, execute func()) {
			go s.Handle(withSeat(ctx), utilflowcontrol.RequestDigest{User: &user.DefaultInfo{Name: name},
				RequestInfo: &genericapirequest.RequestInfo{Verb: verb}},
				func(*flowcontrolv1.FlowSchema, *flowcontrolv1.PriorityLevelConfiguration, string) {},
				func() flowcontrolrequest.WorkEstimate { return flowcontrolrequest.WorkEstimate{InitialSeats: 1} },
				func(bool) {}, execute)
			synctest.Wait()
		}
		finish, running := make(chan struct{}), 0
		for range places + 1 {
			send(t.Context(), "a", "list", func() { running++; <-finish })
		}
		ctx, cancel := context.WithCancel(t.Context())
		send(ctx, "a", "get", func() { t.Error("it ran after its end") })
		cancel()
		synctest.Wait()
		if running != places {
			t.Errorf("%d requests of a user run, want %d", running, places)
		}
		others := 0
		send(t.Context(), "a", "watch", func() { others++ })
		send(t.Context(), user.Anonymous, "get", func() { others++ })
		send(t.Context(), "b", "get", func() { others++ })
		proxied = true
		send(t.Context(), "a", "get", func() { others++ })
		if others != 4 {
			t.Errorf("%d of 4 other requests ran", others)
		}
		finish <- struct{}{}
		synctest.Wait()
		if running != places+1 {
			t.Error("the one that waits does not run when another has finished")
		}
		close(finish)
	})
}

// TestNeverInterrupt checks that a wait after the end of its request is not interrupted.
func TestNeverInterrupt(t *testing.T) {
	ctx := withSeat(t.Context())
	seat := ctx.Value(seatKey{}).(*seat)
	fail := func() { t.Error("it is interrupted") }
	before := waits(ctx, fail)
	neverInterrupt(ctx)
	seat.giveWay()
	before()
	after := waits(ctx, fail)
	seat.giveWay()
	after()
}
