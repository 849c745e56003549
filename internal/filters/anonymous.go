// SPDX-License-Identifier: Apache-2.0

package filters

import "net/http"

// WithAnonymousClose closes an HTTP/2 connection after the first request without credentials. The
// library closes a connection only together with a 401 response
// (UnauthenticatedHTTP2DOSMitigation, CVE-2023-44487). A client that resets its streams never
// receives one, so its connection would stay open. Connections with credentials stay open, because
// the front proxy's connection carries the requests of all users.
func WithAnonymousClose(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.ProtoMajor == 2 && !hasCredentials(req) {
			w.Header().Set("Connection", "close")
		}
		handler.ServeHTTP(w, req)
	})
}

// hasCredentials reports whether a request carries a client certificate or an Authorization
// header, valid or not. It ignores a token in the WebSocket subprotocol: such a request has no
// body and uses HTTP/1.1.
func hasCredentials(req *http.Request) bool {
	return (req.TLS != nil && len(req.TLS.PeerCertificates) > 0) || req.Header.Get("Authorization") != ""
}
