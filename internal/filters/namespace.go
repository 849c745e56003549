// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// WithNamespaceCheck responds with 400 to a namespace that is not a valid path segment, such as
// "..". The library's storage responds with 500, and other storages might use the namespace as a
// key (CVE-2022-3162).
func WithNamespaceCheck(handler http.Handler, serializer runtime.NegotiatedSerializer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		info, ok := genericapirequest.RequestInfoFrom(req.Context())
		if !ok || info.Namespace == "" {
			handler.ServeHTTP(w, req)
			return
		}
		faults := content.IsPathSegmentName(info.Namespace)
		if len(faults) == 0 {
			handler.ServeHTTP(w, req)
			return
		}
		err := apierrors.NewBadRequest(fmt.Sprintf("invalid namespace %q: %s", info.Namespace,
			strings.Join(faults, ", ")))
		responsewriters.RespondWithError(w, req, err, serializer)
	})
}
