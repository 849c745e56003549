// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"net/http"
	"strings"
)

// WithoutOpenAPIHash serves the current OpenAPI document for every requested hash. The library
// redirects from an outdated hash, and kube-apiserver does not forward redirects: after an upgrade
// that changes the API, kubectl explain would get 502 for up to a minute. Without a hash,
// documents are not cached forever. kube-apiserver adds "no-cache" anyway, and the ETag remains.
func WithoutOpenAPIHash(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if strings.HasPrefix(req.URL.Path, "/openapi/v3/") && req.URL.Query().Has("hash") {
			req = req.Clone(req.Context())
			query := req.URL.Query()
			query.Del("hash")
			req.URL.RawQuery = query.Encode()
		}
		handler.ServeHTTP(w, req)
	})
}
