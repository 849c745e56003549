// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"
)

// draining asks clients to leave before the server ends. Without it kube-apiserver, where it connects to a ClusterIP, keeps sending on
// the connection that it has until the moment when the library closes it and refuses whatever still arrives: reads too fail then
// with "apiserver is shutting down". With it each answer in the second half of --shutdown-delay-duration says that the connection ends
// (GOAWAY), while requests are still served, and the next one goes to a new connection. The first half is for the Service's endpoints: the
// new connection must not come here again.
type draining struct{ begun atomic.Bool }

// run waits for the end of the context, which begins the shutdown, and for half of the delay.
func (d *draining) run(ctx context.Context, delay time.Duration) {
	<-ctx.Done()
	<-time.After(delay / 2)
	d.begun.Store(true)
}

func (d *draining) closeConnections(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		// An upgrade takes its connection over, and has its own header Connection.
		if d.begun.Load() && req.Header.Get("Upgrade") == "" {
			w.Header().Set("Connection", "close")
		}
		handler.ServeHTTP(w, req)
	})
}
