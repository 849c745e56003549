// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"

	"golang.org/x/time/rate"
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

// userPace is how many bytes of upgraded connections a user may send per second. Each read from a
// connection and each write to it counts as readCost bytes more, because small frames cost more CPU
// time than their bytes. pacedBuffer is the size of the buffer for the headers of frames: so many
// bytes contain at most two frames of a client. A client can send 9,000 messages of a byte in a
// second, 900 of 1 KiB, or 100 of 32 KiB.
const userPace, readCost, pacedBuffer = 4 << 20, 1 << 10, 16

// WithUpgradeLimit limits the number of upgraded connections of a user. Further ones get 429. A
// request for an upgrade ends when its connection is upgraded, and its handler continues. Until
// then it has the request timeout and a seat of priority and fairness. The library treats it as
// long-running, which means no seat at all, even for unauthorized users.
//
// The context of the handler ends when the caller loses its permission. Its cause is then the
// Status for the caller.
func (l *LongRunning) WithUpgradeLimit(handler http.Handler, serializer runtime.NegotiatedSerializer) http.Handler {
	open, paces := fairness.New(fairness.Limits{PerKey: userUpgrades}), &paces{users: map[string]*pace{}}
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
		pace, leave := paces.enter(user.GetName())
		upgrade := &upgradeWriter{ResponseWriter: w, upgraded: make(chan struct{}), ctx: ctx, pace: pace}
		ended := make(chan any, 1)
		go func() {
			defer release()
			defer leave()
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

// paces are the paces of the users who have upgraded connections.
type paces struct {
	mutex sync.Mutex
	users map[string]*pace
}

type pace struct {
	*rate.Limiter
	connections int
}

// enter returns the pace of a user. Call leave at the end of the connection.
func (p *paces) enter(user string) (own *pace, leave func()) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	own = p.users[user]
	if own == nil {
		own = &pace{Limiter: rate.NewLimiter(userPace, userPace)}
		p.users[user] = own
	}
	own.connections++
	return own, func() {
		p.mutex.Lock()
		defer p.mutex.Unlock()
		if own.connections--; own.connections == 0 {
			delete(p.users, user)
		}
	}
}

// upgradeWriter signals when the handler has taken over the connection, and limits its pace.
type upgradeWriter struct {
	http.ResponseWriter
	upgraded chan struct{}
	ctx      context.Context //nolint:containedctx // of the connection
	pace     *pace
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
	if err != nil {
		return nil, nil, err
	}
	close(w.upgraded)
	early, err := buffered.Peek(buffered.Reader.Buffered())
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	paced := &pacedConn{Conn: conn, early: bytes.NewReader(slices.Clone(early)), ctx: w.ctx, pace: w.pace}
	return paced, bufio.NewReadWriter(bufio.NewReaderSize(paced, pacedBuffer), bufio.NewWriter(paced)), nil
}

// pacedConn is a connection whose reads and writes wait for the pace of the user.
type pacedConn struct {
	net.Conn
	early *bytes.Reader   // read with the head of the request
	ctx   context.Context //nolint:containedctx // of the connection
	pace  *pace
}

// Read implements net.Conn.
func (c *pacedConn) Read(p []byte) (n int, err error) {
	if c.early.Len() > 0 {
		n, err = c.early.Read(p)
	} else {
		n, err = c.Conn.Read(p)
	}
	c.wait(min(n+readCost, userPace))
	return n, err
}

// Write implements net.Conn.
func (c *pacedConn) Write(p []byte) (int, error) {
	c.wait(readCost)
	return c.Conn.Write(p)
}

// wait waits until the context is done at most. The handler then ends the session, and tells the
// client the reason.
func (c *pacedConn) wait(bytes int) { _ = c.pace.WaitN(c.ctx, bytes) }
