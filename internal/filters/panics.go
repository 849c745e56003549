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

// panicCounters are those of the process, by the name of the component: the registry of metrics is one, too.
var panicCounters sync.Map

// PanicCounter returns the counter of a component's panics, registered once for each component.
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

// WithPanicRecovery counts panics, and lets the 500 that the library writes reach the client. The library panics
// again after it, which makes net/http break off the response. That remains so for a response that had started,
// because the client must not take it for a whole one.
func WithPanicRecovery(handler http.Handler, panics *metrics.Counter) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		first := &firstStatus{ResponseWriter: w}
		defer func() {
			reason := recover()
			if reason == nil {
				return
			}
			// ErrAbortHandler is how a handler, or a timeout, breaks its own answer off.
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

// firstStatus remembers with which status the answer began.
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

// Flush implements http.Flusher; a writer without it sends by itself.
func (w *firstStatus) Flush() {
	w.begin(http.StatusOK)
	if flusher, ok := w.ResponseWriter.(http.Flusher); ok {
		flusher.Flush()
	}
}
