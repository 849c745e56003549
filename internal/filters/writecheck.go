// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// WithWriteCheck responds to writes with 503 while check returns an error.
func WithWriteCheck(handler http.Handler, check func() error, serializer runtime.NegotiatedSerializer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		info, ok := genericapirequest.RequestInfoFrom(req.Context())
		err := check()
		if err == nil || !ok || !info.IsResourceRequest || !writes.Has(info.Verb) {
			handler.ServeHTTP(w, req)
			return
		}
		responsewriters.RespondWithError(w, req, apierrors.NewServiceUnavailable(err.Error()), serializer)
	})
}
