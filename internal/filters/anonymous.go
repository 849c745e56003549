// SPDX-License-Identifier: Apache-2.0

package filters

import "net/http"

// WithAnonymousClose closes an HTTP/2 connection after the first request without credentials. The library does so
// only with the 401 that it sends (UnauthenticatedHTTP2DOSMitigation, CVE-2023-44487): a client that resets its
// streams never receives one, and its connection stays open. Connections with credentials stay open, because that of
// the front proxy carries the requests of all users.
func WithAnonymousClose(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.ProtoMajor == 2 && !hasCredentials(req) {
			w.Header().Set("Connection", "close")
		}
		handler.ServeHTTP(w, req)
	})
}

// hasCredentials returns whether a request shows a certificate or a token, good or bad. The token in the
// protocol of a WebSocket is not looked for: such a request has no body, and is HTTP/1.1.
func hasCredentials(req *http.Request) bool {
	return (req.TLS != nil && len(req.TLS.PeerCertificates) > 0) || req.Header.Get("Authorization") != ""
}
