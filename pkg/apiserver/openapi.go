// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"
	"strings"

	"example.com/extension-apiserver/pkg/authentication"
)

// withoutOpenAPIHash lets a request that comes through kube-apiserver have the current OpenAPI document, whatever hash it
// asks for. The library redirects from an outdated hash to the current one, but kube-apiserver passes no redirect on: after
// an update that changes the API, clients such as kubectl explain would get 502 until kube-apiserver has read the new
// hashes, which it does each minute. Nothing is lost: the library allows a document with the right hash to be cached for
// ever, and kube-apiserver adds "no-cache" to that. It must run after authentication.
func withoutOpenAPIHash(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		evidence, _ := authentication.EvidenceFrom(req.Context())
		if evidence.Authenticator == authentication.RequestHeader && strings.HasPrefix(req.URL.Path, "/openapi/v3/") {
			req = req.Clone(req.Context())
			query := req.URL.Query()
			query.Del("hash")
			req.URL.RawQuery = query.Encode()
		}
		handler.ServeHTTP(w, req)
	})
}
