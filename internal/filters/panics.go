// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"errors"
	"net/http"
	"strings"
	"sync"

	"k8s.io/apiserver/pkg/endpoints/responsewriter"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// panicCounters holds the counters of the process by component name. The metrics registry is also
// shared by the whole process.
var panicCounters sync.Map

// PanicCounter returns the counter of a component's panics. It registers each counter once.
func PanicCounter(component string) *metrics.Counter {
	counter := metrics.NewCounter(&metrics.CounterOpts{
		Subsystem:      strings.ReplaceAll(component, "-", "_"),
		Name:           "panics_total",
		Help:           "Requests that ended in a panic.",
		StabilityLevel: metrics.ALPHA,
	})
	known, there := panicCounters.LoadOrStore(component, counter)
	if !there {
		legacyregistry.MustRegister(counter)
	}
	return known.(*metrics.Counter)
}

// WithPanicRecovery counts panics, and lets the library's 500 response reach the client. The
// library panics again after it has written the 500, which makes net/http abort the response. A
// response that has already started is still aborted, because the client must not take it for a
// complete one.
func WithPanicRecovery(handler http.Handler, panics *metrics.Counter) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		first := &firstStatus{ResponseWriter: w}
		defer func() {
			reason := recover()
			if reason == nil {
				return
			}
			// A handler or a timeout panics with ErrAbortHandler to abort its own response.
			if err, ok := reason.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(reason)
			}
			panics.Inc()
			if first.status != http.StatusInternalServerError {
				panic(reason)
			}
		}()
		handler.ServeHTTP(responsewriter.WrapForHTTP1Or2(first), req)
	})
}

// firstStatus records the status with which the response began.
type firstStatus struct {
	http.ResponseWriter
	status int
}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (w *firstStatus) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *firstStatus) begin(status int) {
	if w.status == 0 {
		w.status = status
	}
}

func (w *firstStatus) WriteHeader(status int) {
	w.begin(status)
	w.ResponseWriter.WriteHeader(status)
}

func (w *firstStatus) Write(p []byte) (int, error) {
	w.begin(http.StatusOK)
	return w.ResponseWriter.Write(p)
}

// Flush implements http.Flusher. A writer without Flush sends data by itself.
func (w *firstStatus) Flush() {
	w.begin(http.StatusOK)
	if flusher, ok := w.ResponseWriter.(http.Flusher); ok {
		flusher.Flush()
	}
}
