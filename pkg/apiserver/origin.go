// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/streaming/pkg/httpstream"
)

// refuseForeignOrigins rejects the upgrade requests of web pages: those with an Origin that no
// pattern of --cors-allowed-origins matches. Browsers let every page open a WebSocket to every
// host, such as to kubectl proxy, which adds the user's credentials (RFC 6455, section 10.2). The
// origin cannot be compared with the host of the request, because kube-apiserver replaces Host.
func refuseForeignOrigins(handler http.Handler, patterns []string, serializer runtime.NegotiatedSerializer) http.Handler {
	var allowed []*regexp.Regexp
	for _, pattern := range patterns {
		allowed = append(allowed, regexp.MustCompile(pattern)) // ServerRunOptions.Validate compiled it before
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if len(req.Header.Values("Upgrade")) == 0 || !httpstream.IsUpgradeRequest(req) {
			handler.ServeHTTP(w, req)
			return
		}
		for _, origin := range req.Header.Values("Origin") {
			if slices.ContainsFunc(allowed, func(re *regexp.Regexp) bool { return re.MatchString(origin) }) {
				continue
			}
			responsewriters.RespondWithError(w, req, foreignOrigin(req, origin), serializer)
			return
		}
		handler.ServeHTTP(w, req)
	})
}

// foreignOrigin is 403, but 503 for a watch: fabric8's Java client sends the URL of kube-apiserver as
// the Origin of its watches, and falls back to plain HTTP on 503 and not on 403.
func foreignOrigin(req *http.Request, origin string) error {
	err := fmt.Errorf("an upgrade from the origin %q is not allowed; the server's --cors-allowed-origins can allow it", origin)
	info, ok := genericapirequest.RequestInfoFrom(req.Context())
	switch {
	case !ok:
		return apierrors.NewForbidden(schema.GroupResource{}, "", err)
	case info.Verb == "watch":
		return apierrors.NewServiceUnavailable(err.Error())
	}
	return apierrors.NewForbidden(schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}, info.Name, err)
}
