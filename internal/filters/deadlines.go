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

// WithDeadlines limits how long a client may take: the whole body must arrive within the timeout,
// and the client must read each part of the response within it. Without this limit, a slow client
// holds its connection, seats of priority and fairness, and goroutines indefinitely, because the
// library's timeout waits for the blocked read or write (https://issues.k8s.io/139506). It must be
// the first filter, since it sets deadlines of the connection's own writer.
//
// Responses with status 401 and 429 have a deadline of one second, except to the front proxy,
// which reads the responses that it requested. A connection closes after a 401, and in HTTP/1.1
// after a response that precedes the end of the body. Responses to the front proxy are not
// flushed, so that short ones have a Content-Length.
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

// closingTimeout is how long a client may take to read a rejection, and how long it may continue
// to send after the last response on a connection.
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

// Read removes the deadline at the end of the body. In HTTP/1.1, net/http then waits for the
// client to disconnect with the same deadline, which would end a watch. In HTTP/2 the deadline
// applies to the body only.
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

// abandon ends all reads of the body when an HTTP/1.1 handler returns. A goroutine that the
// library's timeout left behind may still read the body. For that read, net/http would remove the
// deadline. Before it closes the connection, it would then wait indefinitely for up to 256 KiB of
// the body.
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
	responded  bool // a final status has been written
	gaveWay    atomic.Bool
	body       *deadlineBody // nil if the request has no body
}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (w *deadlineWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *deadlineWriter) WriteHeader(status int) {
	w.responded = w.responded || status >= http.StatusOK
	// HTTP/1.1 would read up to 256 KiB of an unread body before it sends a long response, and the
	// request would keep its seat meanwhile. In HTTP/2 the header closes the whole connection.
	if status == http.StatusUnauthorized || w.body != nil && w.body.protocol == 1 && !w.body.ended.Load() {
		w.Header().Set("Connection", "close")
	}
	// A rejected request must not cost more because its client does not read the response.
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

// giveWay ends the response, because other requests wait for its seats.
func (w *deadlineWriter) giveWay() {
	w.gaveWay.Store(true)
	_ = w.controller.SetWriteDeadline(time.Now())
}

// Flush implements http.Flusher. The writers of HTTP/1.1 and HTTP/2 both support it.
func (w *deadlineWriter) Flush() {
	w.begin()
	defer waits(w.ctx, w.giveWay)()
	w.extend()
	defer w.lift()
	_ = w.controller.Flush()
}

// begin writes status 200 if the handler has not written a status.
func (w *deadlineWriter) begin() {
	if !w.responded && !w.hijacked {
		w.WriteHeader(http.StatusOK)
	}
}

// Hijack implements http.Hijacker. The streaming session then controls the deadlines of the
// connection, and continues after the request has ended.
func (w *deadlineWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := w.controller.Hijack()
	w.hijacked = err == nil
	return conn, buffered, err
}

// end runs after the handler. In HTTP/1.1 it sets the deadline for the rest of the response. In
// HTTP/2 only the end of the stream remains to be sent, and end removes the read deadline.
// Otherwise net/http could process the deadline after the stream has ended. It would then not stop
// it, and would keep the stream and the received part of its body until the deadline.
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

// extend sets the write deadline. It ignores the error for a closed connection, which needs no
// limit.
func (w *deadlineWriter) extend() {
	if !w.hijacked {
		_ = w.controller.SetWriteDeadline(time.Now().Add(w.timeout))
	}
	if w.gaveWay.Load() {
		_ = w.controller.SetWriteDeadline(time.Now())
	}
}

// lift removes the write deadline until the next part of the response. HTTP/2 ends a stream at its
// deadline even when no data waits to be sent.
func (w *deadlineWriter) lift() {
	_ = w.controller.SetWriteDeadline(time.Time{})
}
