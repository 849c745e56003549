// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
)

// Forward connects each connection that the listener accepts to one of the targets, in rotation.
// It stops at the end of the test.
func Forward(t testing.TB, listener net.Listener, targets ...func(context.Context) (net.Conn, error)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		listener.Close()
		all.Wait()
	})
	all.Go(func() {
		for i := 0; ; i++ {
			in, err := listener.Accept()
			if err != nil {
				return // the listener is closed
			}
			all.Go(func() { join(ctx, in, targets[i%len(targets)]) })
		}
	})
}

// join copies data in both directions until one side closes the connection or the test ends.
func join(ctx context.Context, in net.Conn, dial func(context.Context) (net.Conn, error)) {
	defer in.Close()
	out, err := dial(ctx)
	if err != nil {
		return // the client sees a closed connection, as behind any load balancer
	}
	defer out.Close()
	end := func() {
		in.Close()
		out.Close()
	}
	defer context.AfterFunc(ctx, end)()
	var both sync.WaitGroup
	one := func(to io.Writer, from io.Reader) {
		defer end()
		_, _ = io.Copy(to, from)
	}
	both.Go(func() { one(in, out) })
	both.Go(func() { one(out, in) })
	both.Wait()
}
