// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"example.com/extension-apiserver/internal/fairness"
)

var (
	// newConnections limits the connections until the end of the TLS handshake and, in HTTP/1.1,
	// until the head of the first request. Each costs up to 100 KiB while it waits for one of
	// handshakes, mostly for bytes that the kernel has received: 200 MiB of the 512 MiB that the
	// manifests allow. kube-apiserver opens a connection for each request for which it has none:
	// more than 1,400 at a time when a user opens 4,000 watches, and many after a restart. The
	// connections that are reserved for an address are accepted even when the total is reached:
	// kube-apiserver and the kubelet can connect while many addresses attack.
	newConnections = fairness.Limits{PerKey: 2000, Total: 2000, Reserved: 50}
	// handshakes limits those of newConnections from which the server reads. Each costs up to
	// 200 KiB, for a handshake of maxHandshake bytes that contains only short certificates: 20 MiB
	// in total.
	handshakes = fairness.Limits{PerKey: 100, Queued: 2000, Total: 100, Reserved: 10}
	// otherConnections limits the connections of clients that are not the front proxy. Each costs
	// up to 1 MiB, for a head of maxHead bytes that contains only short fields: 100 MiB in total.
	// Users of the API connect through kube-apiserver.
	otherConnections = fairness.Limits{PerKey: 50, Total: 100, Reserved: 10}
)

// otherBytes is how many bytes per second such clients may send together after their handshakes,
// and otherBurst is how many at once. The CPU time for an HTTP/2 frame or a TLS record does not depend
// on its length: 4 MiB/s of the shortest ones occupied a core. Heads of many fields made other users
// wait for five seconds.
const otherBytes, otherBurst = 512 << 10, 1 << 20

// otherBuffer is how many bytes the kernel may store for such a connection in each direction. It uses
// up to twice as much memory. Without a limit, it stores up to 4 MiB that a client does not read.
const otherBuffer = 64 << 10

// maxHandshake is how many bytes a client may send in the handshake: a chain of five certificates
// with keys of 4096 bits, and more. crypto/tls accepts 256 KiB, and parses 1,300 certificates.
const maxHandshake = 16 << 10

// maxHandshakeBytes is how many bytes a client may send in total before the end of the handshake
// is known. In HTTP/1.1 this includes the head of the first request, in TLS records.
const maxHandshakeBytes = maxHandshake + maxHead + 16<<10

// limitConnections returns a listener that closes the connections beyond the limits, before TLS.
func limitConnections(listener net.Listener) *limitedListener {
	return &limitedListener{listener, fairness.New(newConnections), fairness.New(handshakes),
		fairness.New(otherConnections), rate.NewLimiter(otherBytes, otherBurst)}
}

type limitedListener struct {
	net.Listener
	accepted, handshakes, others *fairness.Slots
	bytes                        *rate.Limiter // limits the data of clients other than the front proxy
}

// Accept implements net.Listener.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := newConnection(conn, l.handshakes, l.others, l.bytes)
		if err := c.take(l.accepted, &c.early); err == nil {
			return c, nil
		}
		_ = c.Close()
	}
}

// connection is the connection of a client.
type connection struct {
	net.Conn
	handshakes, others *fairness.Slots
	bytes              *rate.Limiter
	frontProxy         atomic.Bool
	established        atomic.Bool
	begun              bool // the handshake; only its goroutine reads until then
	limit              int  // maximum number of bytes to read until established
	read               int
	open               context.Context // until Close
	close              context.CancelFunc
	mutex              sync.Mutex
	early, places      []func() // release functions of the slots until established, and until Close
}

func newConnection(conn net.Conn, handshakes, others *fairness.Slots, bytes *rate.Limiter) *connection {
	c := &connection{Conn: conn, handshakes: handshakes, others: others, bytes: bytes, limit: maxHandshake}
	c.open, c.close = context.WithCancel(context.Background())
	return c
}

// take takes a slot, and adds its release function to places. It waits while the connection is open,
// for up to headTimeout.
func (c *connection) take(slots *fairness.Slots, places *[]func()) error {
	ctx, cancel := context.WithTimeout(c.open, headTimeout)
	defer cancel()
	release, err := slots.Take(ctx, fairness.ClientKey(c.RemoteAddr().String()))
	if err != nil {
		return err
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.open.Err() != nil {
		release()
		return net.ErrClosed
	}
	*places = append(*places, release)
	return nil
}

// Read implements net.Conn. The first call, in the handshake, waits for a slot.
func (c *connection) Read(p []byte) (int, error) {
	if !c.begun {
		c.begun = true
		if err := c.take(c.handshakes, &c.early); err != nil {
			return 0, err
		}
	}
	n, err := c.Conn.Read(p)
	if !c.established.Load() {
		if c.read += n; c.read > c.limit {
			return 0, fmt.Errorf("the client sent more than %d bytes at the beginning", c.limit)
		}
		if c.limit == maxHandshake {
			return n, err
		}
	}
	if n > 0 && !c.frontProxy.Load() {
		if wait := c.bytes.ReserveN(time.Now(), n).Delay(); wait > 0 {
			select {
			case <-time.After(wait):
			case <-c.open.Done():
			}
		}
	}
	return n, err
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.close()
	c.release(&c.early)
	c.release(&c.places)
	return c.Conn.Close()
}

// release releases slots.
func (c *connection) release(places *[]func()) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for _, release := range *places {
		release()
	}
	*places = nil
}

// handshakeDone is called in the handshake, when it is known whether the client has the
// certificate of the front proxy, but not yet whether it has the key. Connections of the front
// proxy have no limit. It returns an error if there are too many other connections.
func (c *connection) handshakeDone(frontProxy bool) error {
	c.frontProxy.Store(frontProxy)
	c.limit = maxHandshakeBytes
	if frontProxy {
		return nil
	}
	if err := c.take(c.others, &c.places); err != nil {
		return fmt.Errorf("connection of %s: %w", c.RemoteAddr(), err)
	}
	c.release(&c.early) // the limit of other connections is lower
	if conn, ok := c.Conn.(*net.TCPConn); ok {
		return errors.Join(conn.SetReadBuffer(otherBuffer), conn.SetWriteBuffer(otherBuffer))
	}
	return nil
}

// establish is called after the handshake, in which the client proved that it has the key.
func (c *connection) establish() {
	if !c.established.Swap(true) {
		c.release(&c.early)
	}
}

type connectionKey struct{}

// withConnection is the http.Server.ConnContext.
func withConnection(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, underTLS(conn))
}

// underTLS returns our connection below a connection of the server, or nil if there is none.
func underTLS(conn net.Conn) *connection {
	if tlsConn, ok := conn.(*tls.Conn); ok {
		conn = tlsConn.NetConn()
	}
	c, _ := conn.(*connection)
	return c
}

// connectionState is the http.Server.ConnState, which reports the first request in HTTP/1.1.
func connectionState(conn net.Conn, state http.ConnState) {
	if c := underTLS(conn); c != nil && state == http.StateActive {
		c.establish()
	}
}

// FromFrontProxy reports whether the request arrived on a connection of the front proxy.
func FromFrontProxy(ctx context.Context) bool {
	conn, _ := ctx.Value(connectionKey{}).(*connection)
	return conn != nil && conn.frontProxy.Load()
}
