// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// servedKinds returns a namer that leaves internal versions out of the group, version and kind of a definition. A Go type that is
// registered as internal and in a served version has both, and clients fail on a version that is not served.
func servedKinds(definitionName func(string) (string, spec.Extensions)) func(string) (string, spec.Extensions) {
	return func(name string) (string, spec.Extensions) {
		const gvks = "x-kubernetes-group-version-kind"
		name, extensions := definitionName(name)
		if kinds, ok := extensions[gvks].([]any); ok {
			extensions[gvks] = slices.DeleteFunc(slices.Clone(kinds), func(kind any) bool {
				fields, ok := kind.(map[string]any)
				return ok && fields["version"] == runtime.APIVersionInternal
			})
		}
		return name, extensions
	}
}

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
