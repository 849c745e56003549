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
	// maxRequests limits the concurrent requests of clients other than the front proxy. Each takes
	// up to 40 KiB. In HTTP/2 the server also holds up to 256 KiB of its body before
	// authentication. In total this is 60 MiB of the 512 MiB that the manifests allow, and twice
	// that before the garbage collector runs.
	maxRequests = 200
	// maxAddressRequests limits the concurrent requests of one address.
	maxAddressRequests = 50
	// reservedRequests of an address are accepted even when the total is reached.
	reservedRequests = 5
)

// WithRequestLimit limits the number of concurrent requests, per address and in total. Further
// requests get 429. It must precede authentication and everything that costs more than rejecting a
// request. It closes a body that no handler reads. The front proxy has no limit, because
// kube-apiserver has authenticated and queued its requests.
func WithRequestLimit(handler http.Handler, fromFrontProxy func(context.Context) bool,
	serializer runtime.NegotiatedSerializer) http.Handler {
	places := fairness.New(fairness.Limits{PerKey: maxAddressRequests, Total: maxRequests, Reserved: reservedRequests})
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		// No handler reads the body of these requests, because a request without credentials can
		// write nothing.
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
			// A response that the client does not read also counts as in progress.
			_ = http.NewResponseController(w).Flush()
		}
	})
}

// withoutBody drops the part of the body that has arrived, and returns the request without a body.
// In HTTP/1.1 no part of the body is in memory, and Close would wait for the rest.
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
