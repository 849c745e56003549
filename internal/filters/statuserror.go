// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"context"
	"net/http"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
)

type refusalKey struct{}

// SetStatusError sets the error with which the server responds to a request. It is for
// authorizers: the library responds to their errors with 500 and no Status, and with 403 when it
// checks the permission to impersonate.
func SetStatusError(ctx context.Context, err *apierrors.StatusError) {
	if refusal, ok := ctx.Value(refusalKey{}).(*atomic.Pointer[apierrors.StatusError]); ok {
		refusal.Store(err)
	}
}

// WithStatusErrors replaces a response with status 500 or 403 by the error of SetStatusError. It
// must precede authentication.
func WithStatusErrors(handler http.Handler, serializer runtime.NegotiatedSerializer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		refusal := &atomic.Pointer[apierrors.StatusError]{}
		req = req.WithContext(context.WithValue(req.Context(), refusalKey{}, refusal))
		handler.ServeHTTP(responsewriter.WrapForHTTP1Or2(&refusalWriter{ResponseWriter: w, respond: func() bool {
			err := refusal.Load()
			if err != nil {
				responsewriters.RespondWithError(w, req, err, serializer)
			}
			return err != nil
		}}), req)
	})
}

type refusalWriter struct {
	http.ResponseWriter
	respond   func() bool
	responded bool
}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (w *refusalWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *refusalWriter) WriteHeader(status int) {
	if (status == http.StatusInternalServerError || status == http.StatusForbidden) && w.respond() {
		w.responded = true
		return
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *refusalWriter) Write(p []byte) (int, error) {
	if w.responded {
		return len(p), nil
	}
	return w.ResponseWriter.Write(p)
}
