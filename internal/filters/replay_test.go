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
// after each manyObjects events of the past, and that it waits for nothing after them. It ends if too
// many watches of its user wait.
func TestReplays(t *testing.T) {
	const version = "resourceVersion=5"
	for name, tc := range map[string]struct {
		query        string
		events, size int
		current      bool // the events are not of the past
		refused      bool // the user has too many waiting watches
		waits, ends  bool
	}{
		"few changes":     {query: version, events: manyObjects, size: 1},
		"many changes":    {query: version, events: manyObjects + 1, size: 1, waits: true},
		"large changes":   {query: version, events: 2, size: manyBytes/2 + 1, waits: true},
		"current changes": {query: version, events: 10 * manyObjects, size: 1, current: true},
		"objects":         {query: "resourceVersion=0", events: 10 * manyObjects, size: 1},
		"too many":        {query: version, events: manyObjects + 1, size: 1, refused: true, ends: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, fairness := testMemory(t), utilflowcontrol.NewInitializationSignal()
				other, err := m.turns.budget.Take(t.Context(), "other", 1)
				if err != nil {
					t.Fatal(err)
				}
				for tc.refused && err == nil {
					_, err = m.turns.enter("ann")
				}
				began, seat := time.Now(), time.Duration(-1)
				go func() {
					fairness.Wait()
					seat = time.Since(began)
				}()
				time.AfterFunc(time.Second, other)
				var took, again time.Duration
				serveWatch(t, m, fairness, tc.query, func(w http.ResponseWriter, req *http.Request) {
					if tc.current {
						utilflowcontrol.WatchInitialized(req.Context())
					}
					send := func() {
						for range tc.events {
							_, _ = w.Write(make([]byte, tc.size))
						}
					}
					send()
					took = time.Since(began)
					if ends := req.Context().Err() != nil; ends != tc.ends {
						t.Errorf("the watch ends: %t, want %t", ends, tc.ends)
					}
					if cause := context.Cause(req.Context()); tc.ends && !apierrors.IsTooManyRequests(cause) {
						t.Errorf("got %v, want 429", cause)
					}
					time.Sleep(2 * time.Second)
					free := time.Now()
					send() // the next turns are free
					utilflowcontrol.WatchInitialized(req.Context())
					again = time.Since(free)
				})
				if waits := took == time.Second; waits != tc.waits || !waits && took != 0 || again != 0 {
					t.Errorf("the events took %s and %s, want that they wait: %t", took, again, tc.waits)
				}
				synctest.Wait()
				if atOnce := seat == 0; atOnce != (tc.waits || tc.ends || tc.current) {
					t.Errorf("the watch left its seat after %s, want at once: %t", seat, !atOnce)
				}
				time.Sleep(time.Second)
				if used := m.turns.budget.InUse(); used != 0 {
					t.Errorf("%d turns are in use after the watch", used)
				}
			})
		})
	}
}

// serveWatch passes a watch of ann through the limit of watches to a handler.
func serveWatch(t *testing.T, m *Memory, fairness utilflowcontrol.InitializationSignal, query string,
	handler http.HandlerFunc) {
	t.Helper()
	ctx := genericapirequest.WithRequestInfo(t.Context(),
		&genericapirequest.RequestInfo{IsResourceRequest: true, Verb: "watch", Resource: "gadgets"})
	ctx = genericapirequest.WithUser(context.WithValue(ctx, grantKey{}, &grant{}), &user.DefaultInfo{Name: "ann"})
	req := httptest.NewRequestWithContext(utilflowcontrol.WithInitializationSignal(ctx, fairness), http.MethodGet,
		"/?"+query, nil)
	newLongRunning(&caller{}).WithWatchLimit(handler, m, testCodecs).ServeHTTP(httptest.NewRecorder(), req)
}
