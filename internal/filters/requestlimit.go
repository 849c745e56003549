// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"context"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"

	"example.com/extension-apiserver/internal/fairness"
)

const (
	// maxRequests bounds the requests that clients other than the front proxy have under way. Each
	// takes up to 40 KiB, and in HTTP/2 up to 256 KiB of its body are kept before it is known who sends
	// it: 60 MiB of the 512 MiB that the manifests allow, twice that before the garbage collector runs.
	maxRequests = 200
	// maxAddressRequests bounds those of one address.
	maxAddressRequests = 50
	// reservedRequests of an address are accepted even when all others are under way.
	reservedRequests = 5
)

// WithRequestLimit limits the number of requests at a time, of an address and in all; others get 429. It precedes
// authentication and all that costs more than to reject a request. It closes a body that no handler reads. The front
// proxy has no limit, because kube-apiserver has authenticated and queued its requests.
func WithRequestLimit(handler http.Handler, fromFrontProxy func(context.Context) bool,
	serializer runtime.NegotiatedSerializer) http.Handler {
	places := fairness.New(fairness.Limits{PerKey: maxAddressRequests, Total: maxRequests, Reserved: reservedRequests})
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		// None of these has a body that is read: nothing is written without credentials.
		if req.Method == http.MethodGet || req.Method == http.MethodHead || req.Method == http.MethodOptions ||
			!hasCredentials(req) {
			req = withoutBody(req)
		}
		if fromFrontProxy(req.Context()) {
			handler.ServeHTTP(w, req)
			return
		}
		release, err := places.Take(req.Context(), fairness.ClientKey(req.RemoteAddr))
		if err != nil {
			w.Header().Set("Connection", "close")
			responsewriters.RespondWithError(w, withoutBody(req),
				apierrors.NewTooManyRequests("too many concurrent requests that bypass kube-apiserver", 1), serializer)
			return
		}
		defer release()
		handler.ServeHTTP(w, req)
		if req.ProtoMajor == 2 {
			// An answer that the client does not read is under way, too.
			_ = http.NewResponseController(w).Flush()
		}
	})
}

// withoutBody is the request after its body was dropped, as far as it has arrived. In HTTP/1.1 nothing
// of it is in memory, and Close would wait for the rest.
func withoutBody(req *http.Request) *http.Request {
	if req.Body == nil || req.Body == http.NoBody {
		return req
	}
	if req.ProtoMajor == 2 {
		_ = req.Body.Close()
	}
	dropped := *req
	dropped.Body = http.NoBody
	return &dropped
}
