// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"
	flowcontrolrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"
)

// TestLongRunningLogs: a log has no timeout. It has a seat of priority and fairness, if there are any, to begin with.
func TestLongRunningLogs(t *testing.T) {
	watch := func(_ *http.Request, info *genericapirequest.RequestInfo) bool { return info.Verb == "watch" }
	info := func(verb, subresource string) *genericapirequest.RequestInfo {
		return &genericapirequest.RequestInfo{IsResourceRequest: true, Verb: verb, Subresource: subresource}
	}
	for _, tc := range []struct {
		name                 string
		info                 *genericapirequest.RequestInfo
		authenticated, seats bool
		want                 bool
	}{
		{"log", info("get", "log"), false, true, true},
		{"log, authenticated", info("get", "log"), true, true, false},
		{"log, authenticated, without seats", info("get", "log"), true, false, true},
		{"watch, authenticated", info("watch", ""), true, true, true},
		{"get", info("get", ""), false, true, false},
		{"create of log", info("create", "log"), false, true, false},
		{"no resource", &genericapirequest.RequestInfo{Verb: "get", Subresource: "log"}, false, true, false},
	} {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		if tc.authenticated {
			req = req.WithContext(genericapirequest.WithUser(req.Context(), &user.DefaultInfo{Name: "a"}))
		}
		if got := WithLogs(watch, tc.seats)(req, tc.info); got != tc.want {
			t.Errorf("%s: long-running: %t, want %t", tc.name, got, tc.want)
		}
	}
}

// TestLogSeats: a log gives its seat back when it has begun, and its request goes on. What it panics with is seen.
func TestLogSeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		level := &oneLevel{}
		s := newSeats(level, func(context.Context) bool { return false }, newTurns(1, noCounts))
		ctx := withSeat(t.Context())
		began, end, ended := make(chan struct{}), make(chan struct{}), make(chan any, 1)
		go func() {
			defer func() { ended <- recover() }()
			s.Handle(ctx, utilflowcontrol.RequestDigest{User: &user.DefaultInfo{Name: "a"},
				RequestInfo: &genericapirequest.RequestInfo{IsResourceRequest: true, Verb: "get", Subresource: "log"}},
				func(*flowcontrolv1.FlowSchema, *flowcontrolv1.PriorityLevelConfiguration, string) {},
				func() flowcontrolrequest.WorkEstimate { return flowcontrolrequest.WorkEstimate{InitialSeats: 1} },
				func(bool) {}, func() {
					<-began
					leaveSeat(ctx)
					<-end
					panic("the log")
				})
		}()
		taken := func() int {
			synctest.Wait()
			s.mutex.Lock()
			defer s.mutex.Unlock()
			return len(s.taken)
		}
		if n := taken(); n != 1 {
			t.Errorf("%d seats are taken before the log begins, want 1", n)
		}
		close(began)
		if n := taken(); n != 0 || len(ended) > 0 {
			t.Errorf("%d seats are taken when the log has begun, and the request has ended: %t; want none, and false", n, len(ended) > 0)
		}
		close(end)
		if reason := <-ended; reason != "the log" {
			t.Errorf("the request panics with %v, want what the log did", reason)
		}
	})
}

// TestLogsEnd: logs end when the server has stopped to be sent requests.
func TestLogsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLongRunning(nil, nil, nil, 1, 1)
		ctx, stop := context.WithCancel(t.Context())
		go l.Run(ctx, 10*time.Second)
		stop()
		<-time.After(9 * time.Second)
		select {
		case <-l.stopped:
			t.Error("logs end before the delay")
		default:
		}
		<-l.stopped
	})
}
