// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"

	"example.com/extension-apiserver/internal/fairness"
)

// caller is a user whose identity and permissions a test takes away.
type caller struct {
	name               string
	groups             []string
	identified, denied error // reason of a failure; nil for none
	unresponsive       error // error of kube-apiserver; nil for none
}

func (c *caller) AuthenticateRequest(req *http.Request) (*authenticator.Response, bool, error) {
	if c.identified != nil {
		return nil, false, c.identified
	}
	if req.Header.Get("Authorization") != "Bearer ann" {
		return nil, false, nil
	}
	return &authenticator.Response{User: &user.DefaultInfo{Name: c.name, Groups: c.groups}}, true, nil
}

func (c *caller) Authorize(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	switch {
	case c.unresponsive != nil:
		return authorizer.DecisionNoOpinion, "", c.unresponsive
	case c.denied != nil:
		return authorizer.DecisionNoOpinion, c.denied.Error(), nil
	}
	return authorizer.DecisionAllow, "", nil
}

// recording is an authorizer that records the permissions that it grants.
type recording struct {
	authorizer.UnconditionalAuthorizer
}

func (r recording) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	decision, reason, err := r.UnconditionalAuthorizer.Authorize(ctx, a)
	if decision == authorizer.DecisionAllow {
		RecordAllowed(ctx, a)
	}
	return decision, reason, err
}

// admit passes a request through authentication and authorization as the library does, and then to
// handler.
func (l *LongRunning) admit(t *testing.T, handler http.Handler) http.Handler {
	return l.WithGrant(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		resp, ok, err := l.AuthenticateRequest(req)
		if !ok || err != nil {
			t.Errorf("authenticate: got %t and %v, want success", ok, err)
			return
		}
		req.Header.Del("Authorization")
		attributes := authorizer.AttributesRecord{User: resp.User, Verb: "watch", Resource: "gadgets"}
		if decision, _, err := l.authorizer.Authorize(req.Context(),
			attributes); decision != authorizer.DecisionAllow || err != nil {
			t.Errorf("authorize: got %v and %v, want it allowed", decision, err)
		}
		handler.ServeHTTP(w, req.WithContext(genericapirequest.WithUser(req.Context(), resp.User)))
	}))
}

func newLongRunning(c *caller) *LongRunning {
	return &LongRunning{authenticator: c, authorizer: recording{c}, panics: PanicCounter("test"), period: confirmPeriod,
		limit: confirmLimit, watches: fairness.Limits{PerKey: 30, Total: 30, Reserved: ReservedWatches}}
}

// TestS12EndWatches checks that a watch ends soon after its caller loses the permission or the
// identity, and that it survives a kube-apiserver that does not respond for a while.
func TestS12EndWatches(t *testing.T) {
	soon := confirmPeriod*6/5 + time.Second
	for _, tc := range []struct {
		name   string
		change func(*caller)
		within time.Duration // 0 means that the watch continues
		cause  string
	}{
		{"nothing", func(*caller) {}, 0, ""},
		{"no permission", func(c *caller) { c.denied = errors.New("role gone") }, soon,
			"the permission to watch was revoked: role gone"},
		{"another user", func(c *caller) { c.name = "bob" }, soon, "no longer match the original user and groups"},
		{"a group less", func(c *caller) { c.groups = nil }, soon, "no longer match the original user and groups"},
		{"no trust", func(c *caller) { c.identified = errors.New("unknown authority") }, confirmLimit + soon,
			"could not be confirmed"},
		{"no response", func(c *caller) { c.unresponsive = errors.New("no route") }, confirmLimit + soon,
			"could not be confirmed"},
		{"loopback, no response", func(c *caller) { c.unresponsive = errors.New("no route") }, confirmLimit + soon,
			"could not be confirmed"},
		{"no response for a short time", func(c *caller) {
			c.unresponsive = errors.New("no route")
			time.AfterFunc(confirmPeriod, func() { c.unresponsive = nil })
		}, 0, ""},
		{"log, no permission", func(c *caller) { c.denied = errors.New("role gone") }, soon,
			"the permission to watch was revoked: role gone"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &caller{name: "ann", groups: []string{"staff"}}
				l := newLongRunning(c)
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				info := &genericapirequest.RequestInfo{IsResourceRequest: true, Verb: "watch", Resource: "gadgets"}
				if strings.HasPrefix(tc.name, "log") {
					info.Verb, info.Subresource = "get", "log"
				}
				req := httptest.NewRequestWithContext(genericapirequest.WithRequestInfo(ctx, info),
					http.MethodGet, "/", nil)
				req.Header.Set("Authorization", "Bearer ann")
				l.admit(t, l.WithWatchLimit(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
					if strings.HasPrefix(tc.name, "loopback") { // which the library authenticates
						g := grantFrom(req.Context())
						g.request, g.user = nil, nil
					}
					<-time.After(10 * time.Minute)
					if err := req.Context().Err(); err != nil {
						t.Errorf("while all is well: got %v, want the watch to continue", context.Cause(req.Context()))
					}
					tc.change(c)
					began := time.Now()
					<-req.Context().Done()
					took, cause := time.Since(began), context.Cause(req.Context())
					if tc.within == 0 {
						if took < 45*time.Minute {
							t.Errorf("it ended after %s with %v, want it to go on", took, cause)
						}
						return
					}
					if took > tc.within || !strings.Contains(fmt.Sprint(cause), tc.cause) {
						t.Errorf("it ended after %s with %v, want %q within %s", took, cause, tc.cause, tc.within)
					}
				}), testMemory(t), testCodecs)).ServeHTTP(httptest.NewRecorder(), req)
			})
		})
	}
}

// TestLongSelectorWatches checks that a watch with long selectors counts as several watches.
func TestLongSelectorWatches(t *testing.T) {
	l := newLongRunning(&caller{}) // allows 30 watches per user
	for name, tc := range map[string]struct {
		labels, fields, other int // bytes
		values                int // empty header fields
		open                  int // short watches that may be open beside it
	}{
		"short":       {100, 100, 100, 0, 29},
		"one more":    {600, 600, 0, 0, 28},
		"all":         {20_000, 20_000, 0, 0, 0},
		"long query":  {0, 0, placeCost, 0, 27},
		"many values": {0, 0, 0, placeCost / valueSize, 27},
	} {
		t.Run(name, func(t *testing.T) {
			var handler http.Handler
			open := 0
			// Each watch opens another one while it is open.
			handler = l.WithWatchLimit(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
				if req.URL.RawQuery != "" {
					open = 0
				} else {
					open++
				}
				handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(req.Context(),
					http.MethodGet, "/", nil))
			}), testMemory(t), testCodecs)
			path := "/?labelSelector=" + strings.Repeat("a", tc.labels) + "&fieldSelector=" +
				strings.Repeat("%61", tc.fields) + "&" + strings.Repeat("a", tc.other)
			ctx := genericapirequest.WithRequestInfo(t.Context(),
				&genericapirequest.RequestInfo{IsResourceRequest: true, Verb: "watch"})
			ctx = genericapirequest.WithUser(context.WithValue(ctx, grantKey{}, &grant{}),
				&user.DefaultInfo{Name: "ann"})
			for range 2 { // the first round releases all slots
				rec := httptest.NewRecorder()
				req := httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil)
				req.Header["A"] = make([]string, tc.values)
				handler.ServeHTTP(rec, req)
				if rec.Code != http.StatusOK || open != tc.open {
					t.Errorf("got %d, and %d short watches beside it, want 200 and %d", rec.Code, open, tc.open)
				}
			}
		})
	}
}

// TestLargeEventWatches checks that a watch takes more slots for a large event, and ends after an
// event for which no slots are left.
func TestLargeEventWatches(t *testing.T) {
	for name, tc := range map[string]struct {
		size   int // bytes
		beside bool
		ends   bool
	}{
		"small":                    {placeCost / 16, true, false},
		"large, alone":             {20 * placeCost, false, false},
		"large, beside another":    {10 * placeCost, true, true},
		"larger than all, alone":   {100 * placeCost, false, false},
		"larger than all, another": {100 * placeCost, true, true},
	} {
		l := newLongRunning(&caller{}) // allows 30 watches per user
		var handler http.Handler
		handler = l.WithWatchLimit(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if req.URL.RawQuery == "" { // the other watch takes 15 slots
				_, _ = w.Write(make([]byte, 7*placeCost))
				return
			}
			event := func() {
				_, err := w.Write(make([]byte, tc.size))
				if ends := req.Context().Err() != nil; ends != tc.ends || err != nil {
					t.Errorf("%s: the watch ends: %t, %v; want %t", name, ends, err, tc.ends)
				}
			}
			if !tc.beside {
				event()
				return
			}
			other := httptest.NewRequestWithContext(context.WithoutCancel(req.Context()), http.MethodGet, "/", nil)
			handler.ServeHTTP(nestedWriter{httptest.NewRecorder(), event}, other)
		}), testMemory(t), testCodecs)
		ctx := genericapirequest.WithRequestInfo(t.Context(),
			&genericapirequest.RequestInfo{IsResourceRequest: true, Verb: "watch"})
		ctx = genericapirequest.WithUser(context.WithValue(ctx, grantKey{}, &grant{}), &user.DefaultInfo{Name: "ann"})
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/?large=1", nil))
	}
}

// nestedWriter calls a function while a watch is open.
type nestedWriter struct {
	*httptest.ResponseRecorder
	while func()
}

func (w nestedWriter) Write(p []byte) (int, error) {
	w.while()
	return w.ResponseRecorder.Write(p)
}

// TestWatchMemory checks that other requests wait while watches hold the memory.
func TestWatchMemory(t *testing.T) {
	m := testMemory(t)
	half := memoryTotal / 2
	share := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		first, err := m.budget.Take(ctx, "ann", int64(half))
		if err != nil {
			return err
		}
		defer first()
		second, err := m.budget.Take(ctx, "bob", int64(half))
		if err == nil {
			second()
		}
		return err
	}
	places := &watchPlaces{open: fairness.New(fairness.Limits{PerKey: half}), memory: m, user: "ann", most: half}
	if err := places.take(t.Context(), half); err != nil {
		t.Fatal(err)
	}
	if err := share(); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("two shares of half of the memory while watches hold a half: got %v, want that one waits", err)
	}
	places.release()
	if err := share(); err != nil {
		t.Errorf("the same without watches: %v", err)
	}
}

// TestUserWatches checks that a user may have a limited number of open watches, and that another
// user can still open watches.
func TestUserWatches(t *testing.T) {
	end := make(chan struct{})
	opened := make(chan struct{})
	handler := newLongRunning(&caller{}).WithWatchLimit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		opened <- struct{}{}
		<-end
	}), testMemory(t), testCodecs)
	watch := func(name string) int {
		ctx := genericapirequest.WithRequestInfo(t.Context(),
			&genericapirequest.RequestInfo{IsResourceRequest: true, Verb: "watch"})
		ctx = genericapirequest.WithUser(context.WithValue(ctx, grantKey{}, &grant{}), &user.DefaultInfo{Name: name})
		rec := httptest.NewRecorder()
		handler.ServeHTTP(rec, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
		return rec.Code
	}
	var open sync.WaitGroup
	start := func(name string) {
		open.Go(func() {
			if code := watch(name); code != http.StatusOK {
				t.Errorf("a watch of %s: got %d, want it opened", name, code)
			}
		})
		<-opened
	}
	refuse := func(name string) {
		refused := make(chan int, 1)
		open.Go(func() { refused <- watch(name) })
		select {
		case code := <-refused:
			if code != http.StatusTooManyRequests {
				t.Errorf("one more of %s: got %d, want 429", name, code)
			}
		case <-opened:
			t.Errorf("one more of %s was opened, want 429", name)
		}
	}
	for range 30 {
		start("ann")
	}
	refuse("ann")
	// The total is reached, and each user still has reserved slots.
	for range ReservedWatches {
		start("bob")
	}
	refuse("bob")
	start("cid")
	close(end)
	open.Wait()
}

// TestCredentialsOfLongRunning checks that only requests that can be long-running keep a copy of
// their credentials.
func TestCredentialsOfLongRunning(t *testing.T) {
	for _, tc := range []struct {
		name    string
		info    *genericapirequest.RequestInfo
		upgrade string
		want    bool
	}{
		{"get", &genericapirequest.RequestInfo{IsResourceRequest: true, Verb: "get"}, "", false},
		{"watch", &genericapirequest.RequestInfo{IsResourceRequest: true, Verb: "watch"}, "", true},
		{"upgrade", &genericapirequest.RequestInfo{IsResourceRequest: true, Verb: "get"}, "websocket", true},
		{"upgrade of something else", &genericapirequest.RequestInfo{Verb: "get"}, "websocket", false},
		{"no information", nil, "websocket", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ctx := t.Context()
			if tc.info != nil {
				ctx = genericapirequest.WithRequestInfo(ctx, tc.info)
			}
			req := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
			if tc.upgrade != "" {
				req.Header.Set("Connection", "Upgrade")
				req.Header.Set("Upgrade", tc.upgrade)
			}
			if got := isLongRunning(req); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
}
