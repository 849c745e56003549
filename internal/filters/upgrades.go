// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream"

	"example.com/extension-apiserver/internal/fairness"
)

// userUpgrades is how many upgraded connections a user may have open.
const userUpgrades = 100

// WithUpgradeLimit limits the number of upgraded connections of a user. Further ones get 429. A
// request for an upgrade ends when its connection is upgraded, and its handler continues. Until
// then it has the request timeout and a seat of priority and fairness. The library treats it as
// long-running, which means no seat at all, even for unauthorized users.
//
// The context of the handler ends when the caller loses its permission. Its cause is then the
// Status for the caller.
func (l *LongRunning) WithUpgradeLimit(handler http.Handler, serializer runtime.NegotiatedSerializer) http.Handler {
	open := fairness.New(fairness.Limits{PerKey: userUpgrades})
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		info, ok := genericapirequest.RequestInfoFrom(req.Context())
		if !ok || !info.IsResourceRequest || info.Verb == "watch" || !httpstream.IsUpgradeRequest(req) {
			handler.ServeHTTP(w, req)
			return
		}
		user, _ := genericapirequest.UserFrom(req.Context())
		release, err := open.Take(req.Context(), user.GetName())
		if err != nil {
			err = apierrors.NewTooManyRequests(fmt.Sprintf("the user has %d open upgraded connections", userUpgrades), 1)
			responsewriters.RespondWithError(w, req, err, serializer)
			return
		}
		ctx, cancel := context.WithCancelCause(context.WithoutCancel(req.Context()))
		stop := context.AfterFunc(req.Context(), func() { cancel(context.Cause(req.Context())) })
		upgrade := &upgradeWriter{ResponseWriter: w, upgraded: make(chan struct{})}
		ended := make(chan any, 1)
		go func() {
			defer release()
			defer cancel(nil)
			defer func() { ended <- recover() }()
			handler.ServeHTTP(responsewriter.WrapForHTTP1Or2(upgrade), req.WithContext(ctx))
		}()
		select {
		case <-upgrade.upgraded:
			stop()
			granted := grantFrom(ctx)
			granted.seal()
			go l.confirm(ctx, cancel, granted)
			go l.logPanic(ctx, ended)
		case reason := <-ended:
			if reason != nil {
				panic(reason)
			}
		}
	})
}

// logPanic waits for the end of a handler for which no filter waits, and logs and counts its
// panic.
func (l *LongRunning) logPanic(ctx context.Context, ended <-chan any) {
	if reason := <-ended; reason != nil {
		l.panics.Inc()
		klog.FromContext(ctx).Error(fmt.Errorf("%v", reason), "Panic in an upgraded connection")
	}
}

// upgradeWriter signals when the handler has taken over the connection.
type upgradeWriter struct {
	http.ResponseWriter
	upgraded chan struct{}
}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (w *upgradeWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Hijack implements http.Hijacker.
func (w *upgradeWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	hijacker, ok := w.ResponseWriter.(http.Hijacker)
	if !ok {
		return nil, nil, errors.ErrUnsupported
	}
	conn, buffered, err := hijacker.Hijack()
	if err == nil {
		close(w.upgraded)
	}
	return conn, buffered, err
}
