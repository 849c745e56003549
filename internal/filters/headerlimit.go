// SPDX-License-Identifier: Apache-2.0

package filters

import "net/http"

// maxFields is the number of header fields with different names. A request holds its fields until it ends, and each
// takes 200 bytes more than its text.
const maxFields = 128

// WithHeaderLimit responds with 431 to a request with more than 128 different header fields. It removes Range: the
// library would copy OpenAPI documents once for each range. It must run before authentication.
func WithHeaderLimit(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if len(req.Header) > maxFields {
			http.Error(w, "too many header fields", http.StatusRequestHeaderFieldsTooLarge)
			return
		}
		req.Header.Del("Range")
		handler.ServeHTTP(w, req)
	})
}
