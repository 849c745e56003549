// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/endpoints/responsewriter"
)

// withWriteDeadline ends an answer that the client does not read: a piece of it that could not be sent within the timeout fails.
// Without it such a request holds its seat of priority and fairness, its objects and its goroutines for as long as the client
// likes, request timeout or not: the library's timeout waits for the very write that is stuck (https://issues.k8s.io/139506).
// It comes first in the chain, where the connection's own writer is.
func withWriteDeadline(handler http.Handler, timeout time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		limited := &deadlineWriter{ResponseWriter: w, controller: http.NewResponseController(w), timeout: timeout}
		// The server sends what is left, at least the end of the answer, after the handler.
		defer limited.extend()
		handler.ServeHTTP(responsewriter.WrapForHTTP1Or2(limited), req)
	})
}

type deadlineWriter struct {
	http.ResponseWriter
	controller *http.ResponseController
	timeout    time.Duration
}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (w *deadlineWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *deadlineWriter) Write(p []byte) (int, error) {
	w.extend()
	defer w.lift()
	return w.ResponseWriter.Write(p)
}

// Flush implements http.Flusher; the writers of HTTP/1.1 and HTTP/2 both do.
func (w *deadlineWriter) Flush() {
	w.extend()
	defer w.lift()
	_ = w.controller.Flush()
}

// extend ignores the error of a connection that was taken over or is gone: there is nothing to limit any more.
func (w *deadlineWriter) extend() {
	_ = w.controller.SetWriteDeadline(time.Now().Add(w.timeout))
}

// lift is for the silence until the next piece: HTTP/2 ends a stream at its deadline even when nothing waits to be sent.
func (w *deadlineWriter) lift() {
	_ = w.controller.SetWriteDeadline(time.Time{})
}
