// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/endpoints/responsewriter"
)

// WithDeadlines limits the time that a client takes: the whole body must arrive within the timeout, and the client
// must read each piece of the response within it. Otherwise a request holds its connection, seats of priority and
// fairness and goroutines for as long as the client likes, because the library's timeout waits for the blocked read
// or write (https://issues.k8s.io/139506). It must be the first filter, since it sets deadlines of the connection's
// own writer.
//
// Responses of 401 and 429 have a second, except to the front proxy, which reads what it requested. A connection
// closes after a 401, and in HTTP/1.1 after a response that precedes the end of the body. Responses to the front
// proxy are not flushed, so that a short one has a Content-Length.
func WithDeadlines(handler http.Handler, timeout time.Duration,
	fromFrontProxy func(context.Context) bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		req = req.WithContext(withSeat(req.Context()))
		limited := &deadlineWriter{ResponseWriter: w, ctx: req.Context(), controller: http.NewResponseController(w),
			timeout:    timeout,
			frontProxy: fromFrontProxy(req.Context())}
		defer limited.end(req)
		defer neverInterrupt(req.Context())
		if req.Body != nil && req.Body != http.NoBody {
			_ = limited.controller.SetReadDeadline(time.Now().Add(timeout))
			limited.body = &deadlineBody{ReadCloser: req.Body, ctx: req.Context(), protocol: req.ProtoMajor,
				controller: limited.controller}
			req.Body = limited.body
		}
		handler.ServeHTTP(responsewriter.WrapForHTTP1Or2(limited), req)
		if req.ProtoMajor == 2 && !limited.frontProxy {
			limited.Flush()
		}
	})
}

// closingTimeout is how long a client may take to read that it was refused, and how long it may go on
// sending after the last answer on a connection.
const closingTimeout = time.Second

type deadlineBody struct {
	io.ReadCloser
	ctx        context.Context // of the request
	protocol   int
	controller *http.ResponseController
	ended      atomic.Bool
	reading    sync.Mutex
	abandoned  bool
	gaveWay    atomic.Bool
}

// Read lifts the deadline at the end of the body. After it, HTTP/1.1 waits for the client to leave
// with the same deadline, which would end a watch. In HTTP/2 the deadline is that of the body only.
func (b *deadlineBody) Read(p []byte) (int, error) {
	b.reading.Lock()
	defer b.reading.Unlock()
	if b.abandoned {
		return 0, http.ErrBodyReadAfterClose
	}
	defer waits(b.ctx, func() {
		b.gaveWay.Store(true)
		_ = b.controller.SetReadDeadline(time.Now())
	})()
	n, err := b.ReadCloser.Read(p)
	switch {
	case errors.Is(err, io.EOF):
		b.ended.Store(true)
		if b.protocol == 1 {
			_ = b.controller.SetReadDeadline(time.Time{})
		}
	case err != nil && b.gaveWay.Load():
		err = errGaveWay
	}
	return n, err
}

// abandon is for the end of a handler in HTTP/1.1. What the library's timeout left behind may still read
// the body: for it net/http would lift the deadline, and then wait as long as the client likes for the
// up to 256 KiB of the body that it takes before it closes the connection.
func (b *deadlineBody) abandon() {
	if b.ended.Load() {
		return
	}
	_ = b.controller.SetReadDeadline(time.Now())
	b.reading.Lock()
	defer b.reading.Unlock()
	b.abandoned = true
	_ = b.controller.SetReadDeadline(time.Now().Add(closingTimeout))
}

type deadlineWriter struct {
	http.ResponseWriter
	ctx        context.Context // of the request
	controller *http.ResponseController
	timeout    time.Duration
	frontProxy bool
	hijacked   bool
	answered   bool // with a status
	gaveWay    atomic.Bool
	body       *deadlineBody // nil without one
}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (w *deadlineWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *deadlineWriter) WriteHeader(status int) {
	w.answered = w.answered || status >= http.StatusOK
	// HTTP/1.1 would read up to 256 KiB of a body that nobody wanted before it sends a long answer, and
	// the request would keep its seat meanwhile. In HTTP/2 the header ends the whole connection.
	if status == http.StatusUnauthorized || w.body != nil && w.body.protocol == 1 && !w.body.ended.Load() {
		w.Header().Set("Connection", "close")
	}
	// What is refused may not cost more because the client does not read it.
	if !w.frontProxy && (status == http.StatusUnauthorized || status == http.StatusTooManyRequests) {
		w.timeout = closingTimeout
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *deadlineWriter) Write(p []byte) (int, error) {
	w.begin()
	defer waits(w.ctx, w.giveWay)()
	w.extend()
	defer w.lift()
	if w.gaveWay.Load() {
		return 0, errGaveWay
	}
	return w.ResponseWriter.Write(p)
}

// giveWay ends the response.
func (w *deadlineWriter) giveWay() {
	w.gaveWay.Store(true)
	_ = w.controller.SetWriteDeadline(time.Now())
}

// Flush implements http.Flusher; the writers of HTTP/1.1 and HTTP/2 both do.
func (w *deadlineWriter) Flush() {
	w.begin()
	defer waits(w.ctx, w.giveWay)()
	w.extend()
	defer w.lift()
	_ = w.controller.Flush()
}

// begin writes the status that an answer without one has.
func (w *deadlineWriter) begin() {
	if !w.answered && !w.hijacked {
		w.WriteHeader(http.StatusOK)
	}
}

// Hijack implements http.Hijacker. The deadlines of the connection are then those of the session,
// which goes on when the request has ended.
func (w *deadlineWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := w.controller.Hijack()
	w.hijacked = err == nil
	return conn, buffered, err
}

// end is for what comes after the handler. HTTP/1.1 sends what is left of the answer. HTTP/2 sends no
// more than the end of a stream, and would keep each stream, with what arrived of its body, until its
// deadlines: it can learn of them after the stream ended, and does not stop them then.
func (w *deadlineWriter) end(req *http.Request) {
	if req.ProtoMajor == 2 {
		_ = w.controller.SetReadDeadline(time.Time{})
		return
	}
	w.extend()
	if w.body != nil && !w.hijacked {
		w.body.abandon()
	}
}

// extend ignores the error of a connection that is gone: there is nothing to limit any more.
func (w *deadlineWriter) extend() {
	if !w.hijacked {
		_ = w.controller.SetWriteDeadline(time.Now().Add(w.timeout))
	}
	if w.gaveWay.Load() {
		_ = w.controller.SetWriteDeadline(time.Now())
	}
}

// lift is for the silence until the next piece: HTTP/2 ends a stream at its deadline even when
// nothing waits to be sent.
func (w *deadlineWriter) lift() {
	_ = w.controller.SetWriteDeadline(time.Time{})
}
