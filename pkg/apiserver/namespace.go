// SPDX-License-Identifier: Apache-2.0

package apiserver

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

// refusePathNamespaces answers 400 to a namespace that is a path, such as "..". The library's storage refuses it too, last of all and
// with 500; like this it comes to no key, whatever storage a kind has (CVE-2022-3162).
func refusePathNamespaces(handler http.Handler, serializer runtime.NegotiatedSerializer) http.Handler {
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
		err := apierrors.NewBadRequest(fmt.Sprintf("invalid namespace %q: %s", info.Namespace, strings.Join(faults, ", ")))
		responsewriters.RespondWithError(w, req, err, serializer)
	})
}
