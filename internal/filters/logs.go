// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"context"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
)

// logSeat is how long a log request keeps its seat while its response has not begun.
const logSeat = time.Second

// errStopped ends log requests when the server stops.
var errStopped = apierrors.NewServiceUnavailable("the server is shutting down")

// isLog reports whether a request reads a log, which may take as long as its client wants.
// kube-apiserver also recognizes log requests by the name of the subresource.
func isLog(info *genericapirequest.RequestInfo) bool {
	return info != nil && info.IsResourceRequest && info.Verb == "get" && info.Subresource == "log"
}

// WithLogs returns a check that also classifies log requests as long-running, so that they have no
// timeout. If seats is true, the filters after authentication, such as priority and fairness,
// treat them as short requests. The library gives long-running requests no seat at all, even those
// of unauthorized users.
func WithLogs(longRunning genericapirequest.LongRunningRequestCheck,
	seats bool) genericapirequest.LongRunningRequestCheck {
	return func(req *http.Request, info *genericapirequest.RequestInfo) bool {
		_, authenticated := genericapirequest.UserFrom(req.Context())
		return longRunning(req, info) || isLog(info) && (!authenticated || !seats)
	}
}

// serveLog serves a log request. The request keeps its seat until its response begins, for at most
// one second.
func (l *LongRunning) serveLog(ctx context.Context, cancel context.CancelCauseFunc, w http.ResponseWriter,
	req *http.Request, handler http.Handler) {
	leave := sync.OnceFunc(func() { leaveSeat(ctx) })
	timer := time.AfterFunc(logSeat, leave)
	defer timer.Stop()
	go func() {
		select {
		case <-l.stopped:
			cancel(errStopped)
		case <-ctx.Done():
		}
	}()
	begun := &beginWriter{ResponseWriter: w, begin: func() {
		leave()
		// The library does the same for requests without a timeout.
		audit.AuditContextFrom(ctx).ProcessEventStage(ctx, auditinternal.StageResponseStarted)
	}}
	handler.ServeHTTP(responsewriter.WrapForHTTP1Or2(begun), req.WithContext(ctx))
}

// beginWriter calls begin after the response header has been written.
type beginWriter struct {
	http.ResponseWriter
	once  sync.Once
	begin func()
}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (w *beginWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *beginWriter) WriteHeader(code int) {
	w.ResponseWriter.WriteHeader(code)
	w.once.Do(w.begin)
}

// Write implements http.ResponseWriter.
func (w *beginWriter) Write(p []byte) (int, error) {
	w.once.Do(func() {
		w.ResponseWriter.WriteHeader(http.StatusOK)
		w.begin()
	})
	return w.ResponseWriter.Write(p)
}
