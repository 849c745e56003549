// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"
)

// Draining makes clients leave before the server stops. While it drains, each response closes its
// connection (GOAWAY in HTTP/2), and the server still serves requests. Without it, a
// kube-apiserver that connects to a ClusterIP uses its connection until the library closes it, and
// requests on it fail with "apiserver is shutting down".
type Draining struct{ begun atomic.Bool }

// Run waits for the end of the context and half of the delay, and then starts to drain. In the
// first half of the delay, the pod leaves the endpoints of its Service, so that new connections
// reach other pods. Run returns when draining has started.
func (d *Draining) Run(ctx context.Context, delay time.Duration) {
	<-ctx.Done()
	<-time.After(delay / 2)
	d.begun.Store(true)
}

// WithConnectionClose closes connections while the server drains, except upgraded connections.
func (d *Draining) WithConnectionClose(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		// An upgrade takes over its connection, and has its own Connection header.
		if d.begun.Load() && req.Header.Get("Upgrade") == "" {
			w.Header().Set("Connection", "close")
		}
		handler.ServeHTTP(w, req)
	})
}
