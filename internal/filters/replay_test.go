// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"
)

// TestReplays checks that a watch that begins at a resource version waits for a turn, without a seat,
// before it starts and after each fewChanges changes. Other events wait for nothing. The watch ends if
// too many watches of its user wait.
func TestReplays(t *testing.T) {
	for name, tc := range map[string]struct {
		events, size int
		current      bool // the events are not of the past
		refused      bool // the user has too many waiting watches
		waits        bool
	}{
		"few changes":     {events: fewChanges, size: 1},
		"many changes":    {events: fewChanges + 1, size: 1, waits: true},
		"large changes":   {events: 2, size: fewBytes/2 + 1, waits: true},
		"current changes": {events: 10 * fewChanges, size: 1, current: true},
		"too many":        {events: fewChanges + 1, size: 1, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := testMemory(t)
				m.turns = newTurns(1, m.counts, m.sizes)
				other := func() { // has all turns for a second
					release, err := m.turns.budget.Take(t.Context(), "other", 1)
					if err != nil {
						t.Error(err)
					}
					time.AfterFunc(time.Second, release)
				}
				other()
				began := time.Now()
				got := serveWatch(t, m, "resourceVersion=5", func(w http.ResponseWriter, req *http.Request) {
					if took := time.Since(began); took != time.Second {
						t.Errorf("the watch starts after %s, want 1s", took)
					}
					if tc.current {
						utilflowcontrol.WatchInitialized(req.Context())
					}
					<-time.After(2 * longTurn)
					for tc.refused {
						_, err := m.turns.enter("ann")
						tc.refused = err == nil
					}
					other()
					began = time.Now()
					for range tc.events {
						_, _ = w.Write(make([]byte, tc.size))
					}
					if took := time.Since(began); took != 0 && !tc.waits || took != time.Second && tc.waits {
						t.Errorf("the events took %s, want that they wait: %t", took, tc.waits)
					}
					cause := context.Cause(req.Context())
					if ends := name == "too many"; apierrors.IsTooManyRequests(cause) != ends || cause != nil && !ends {
						t.Errorf("the watch ends with %v, want 429: %t", cause, ends)
					}
				})
				if got.Code != http.StatusOK {
					t.Errorf("got %d %s", got.Code, got.Body)
				}
				<-time.After(2 * time.Second)
				if used := m.turns.budget.InUse(); used != 0 {
					t.Errorf("%d turns are in use after the watch", used)
				}
			})
		})
	}
}

// TestReplayStarts checks that a watch that sends the existing objects needs no turn of a replay, and
// that too many waiting watches of a user get 429.
func TestReplayStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := testMemory(t)
		m.turns = newTurns(1, m.counts, m.sizes)
		for err := error(nil); err == nil; {
			_, err = m.turns.enter("ann")
		}
		for query, want := range map[string]int{"resourceVersion=0": http.StatusOK, "": http.StatusOK,
			"resourceVersion=5": http.StatusTooManyRequests} {
			if got := serveWatch(t, m, query, func(http.ResponseWriter, *http.Request) {}); got.Code != want {
				t.Errorf("%q: got %d %s, want %d", query, got.Code, got.Body, want)
			}
		}
	})
}

// serveWatch passes a watch of ann through the limit of watches to a handler. The watch must leave its
// seat before that, if it begins at a version.
func serveWatch(t *testing.T, m *Memory, query string, handler http.HandlerFunc) *httptest.ResponseRecorder {
	t.Helper()
	ctx := genericapirequest.WithRequestInfo(t.Context(),
		&genericapirequest.RequestInfo{IsResourceRequest: true, Verb: "watch", Resource: "gadgets"})
	ctx = genericapirequest.WithUser(context.WithValue(ctx, grantKey{}, &grant{}), &user.DefaultInfo{Name: "ann"})
	seat, began := utilflowcontrol.NewInitializationSignal(), time.Now()
	left := time.Duration(-1)
	go func() {
		seat.Wait()
		left = time.Since(began)
	}()
	w := httptest.NewRecorder()
	newLongRunning(&caller{}).WithWatchLimit(handler, m, testCodecs).ServeHTTP(w, httptest.NewRequestWithContext(
		utilflowcontrol.WithInitializationSignal(ctx, seat), http.MethodGet, "/?"+query, nil))
	<-time.After(time.Nanosecond) // until seat.Wait has returned
	if atOnce := left == 0; atOnce != (query == "resourceVersion=5") {
		t.Errorf("%q: the watch left its seat after %s", query, left)
	}
	seat.Signal()
	return w
}
