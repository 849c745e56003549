// SPDX-License-Identifier: Apache-2.0

package apiserver

import "net/http"

// closeWithoutCredentials ends a connection of HTTP/2 with the first request that shows no credentials. The library does so with the
// 401 (UnauthenticatedHTTP2DOSMitigation, CVE-2023-44487), but a client that takes its requests back is never answered 401: the library
// then answers 504 in the name of the timeout, to nobody, and the connection stays open. Connections with credentials stay: that of the
// front proxy carries all users' requests, and one of them must not end it by cancelling.
func closeWithoutCredentials(handler http.Handler) http.Handler {
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
