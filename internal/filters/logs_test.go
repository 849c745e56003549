// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"
	flowcontrolrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"

	"example.com/extension-apiserver/internal/objectsizes"
)

// TestLongRunningLogs checks that a log request has no timeout, and that it starts with a seat of
// priority and fairness if seats are in use.
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

// TestLogSeats checks that a log request gives up its seat when its response has begun, that the
// request continues, and that a panic in it is reported.
func TestLogSeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		level := &oneLevel{}
		s := newSeats(level, func(context.Context) bool { return false }, newTurns(1, noCounts, objectsizes.New()))
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

// TestServeLog checks that a log request gives up its seat when its response begins or after one
// second, and that a response that began is in the audit log. The request ends after the delay
// that follows the start of the shutdown.
func TestServeLog(t *testing.T) {
	for _, tc := range []struct {
		name  string
		begin func(http.ResponseWriter)
		stage auditinternal.Stage
	}{
		{"header", func(w http.ResponseWriter) { w.WriteHeader(http.StatusOK) }, auditinternal.StageResponseStarted},
		{"write", func(w http.ResponseWriter) { _, _ = w.Write(nil) }, auditinternal.StageResponseStarted},
		{"nothing", func(http.ResponseWriter) { <-time.After(logSeat) }, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := NewLongRunning(nil, nil, nil, 1, 1)
				stopping, stop := context.WithCancel(t.Context())
				go l.Run(stopping, 10*time.Second)
				sink := &stages{}
				ctx := audit.WithAuditContext(withSeat(t.Context()))
				if err := audit.AuditContextFrom(ctx).Init(audit.RequestAuditConfig{
					Level: auditinternal.LevelMetadata}, sink); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancelCause(ctx)
				req := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
				seat := ctx.Value(seatKey{}).(*seat) //nolint:forcetypeassert // withSeat
				hasSeat := func() bool {
					synctest.Wait()
					select {
					case <-seat.left:
						return false
					default:
						return true
					}
				}
				l.serveLog(ctx, cancel, httptest.NewRecorder(), req, http.HandlerFunc(func(w http.ResponseWriter,
					req *http.Request) {
					if !hasSeat() {
						t.Error("the log has no seat before it begins")
					}
					tc.begin(w)
					if hasSeat() {
						t.Error("the log still has its seat when it has begun")
					}
					if sink.last != tc.stage {
						t.Errorf("audited stage %q, want %q", sink.last, tc.stage)
					}
					stop()
					began := time.Now()
					<-req.Context().Done()
					if cause := context.Cause(req.Context()); !errors.Is(cause, errStopped) || time.Since(began) != 10*time.Second {
						t.Errorf("ended with %v after %s, want %v after 10s", cause, time.Since(began), errStopped)
					}
				}))
			})
		})
	}
}

// stages is an audit backend that records the last stage.
type stages struct{ last auditinternal.Stage }

// ProcessEvents implements audit.Sink.
func (s *stages) ProcessEvents(events ...*auditinternal.Event) bool {
	for _, event := range events {
		s.last = event.Stage
	}
	return true
}
