// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestWithoutOpenAPIHash checks that a request for an old document is not redirected to the
// current one.
func TestWithoutOpenAPIHash(t *testing.T) {
	for _, tc := range []struct{ name, url, want string }{
		{"with a hash", "/openapi/v3/apis/a/v1?hash=old&timeout=32s", "/openapi/v3/apis/a/v1?timeout=32s"},
		{"without", "/openapi/v3/apis/a/v1?timeout=32s", "/openapi/v3/apis/a/v1?timeout=32s"},
		{"another path", "/apis/a/v1?hash=old", "/apis/a/v1?hash=old"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, tc.url, nil)
			got := ""
			handler := WithoutOpenAPIHash(http.HandlerFunc(
				func(_ http.ResponseWriter, req *http.Request) { got = req.URL.String() }))
			handler.ServeHTTP(httptest.NewRecorder(), req)
			if got != tc.want || req.URL.String() != tc.url {
				t.Errorf("served: got %s, want %s; the request itself became %s", got, tc.want, req.URL)
			}
		})
	}
}
