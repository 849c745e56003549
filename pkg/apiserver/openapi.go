// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"
	"strings"
)

// withoutOpenAPIHash serves the current OpenAPI document, whatever hash a request asks for. The library redirects from an outdated
// hash to the current one, but kube-apiserver passes no redirect on: after an update that changes the API, clients such as
// kubectl explain would get 502 until kube-apiserver has read the new hashes, which it does each minute. What is lost is that a
// document with the right hash may be cached for ever, to which kube-apiserver adds "no-cache" anyway; the ETag stays.
func withoutOpenAPIHash(handler http.Handler) http.Handler {
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
