// SPDX-License-Identifier: Apache-2.0

package filters

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

// WithOriginCheck responds with 403 to upgrade requests with an Origin header that none of the
// patterns matches (--cors-allowed-origins). Browsers let any web page open a WebSocket to any
// host, such as that of kubectl proxy, which adds the user's credentials (RFC 6455, section 10.2).
// Origin cannot be compared with Host, because kube-apiserver replaces Host.
func WithOriginCheck(handler http.Handler, patterns []string, serializer runtime.NegotiatedSerializer) http.Handler {
	var allowed []*regexp.Regexp
	for _, pattern := range patterns {
		allowed = append(allowed, regexp.MustCompile(pattern)) // ServerRunOptions.Validate has compiled it before
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

// foreignOrigin returns an error with status 403, or 503 for a watch: fabric8's Java client sends
// the URL of kube-apiserver as the Origin of its watches, and falls back to plain HTTP on 503 but
// not on 403.
func foreignOrigin(req *http.Request, origin string) error {
	err := fmt.Errorf("an upgrade from the origin %q is not allowed; the server's --cors-allowed-origins can allow it",
		origin)
	info, ok := genericapirequest.RequestInfoFrom(req.Context())
	switch {
	case !ok:
		return apierrors.NewForbidden(schema.GroupResource{}, "", err)
	case info.Verb == "watch":
		return apierrors.NewServiceUnavailable(err.Error())
	}
	return apierrors.NewForbidden(schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}, info.Name, err)
}
