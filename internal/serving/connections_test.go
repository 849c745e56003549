// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"example.com/extension-apiserver/internal/fairness"
)

// TestS40CountedConnection checks that a connection is counted once until it is closed, and that a
// connection beyond the limits is closed.
func TestS40CountedConnection(t *testing.T) {
	inner, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer inner.Close()
	one := func() *fairness.Slots { return fairness.New(fairness.Limits{PerKey: 1}) }
	l := &limitedListener{inner, one(), one(), one(), rate.NewLimiter(otherBytes, otherBurst)}
	dial := func() net.Conn {
		t.Helper()
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	accepted := make(chan net.Conn, 1)
	accept := func() {
		conn, err := l.Accept()
		if err != nil {
			t.Error(err)
		}
		accepted <- conn
	}
	go accept()
	dial()
	first := <-accepted
	go accept()
	if _, err := dial().Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("a second connection: got %v, want it closed", err)
	}
	for range 2 {
		_ = first.Close()
	}
	dial()
	second := <-accepted
	go accept()
	if _, err := dial().Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("a connection beside one that was let in: got %v, want it closed", err)
	}
	_ = second.Close()
	dial()
	third := (<-accepted).(*connection)
	// The certificate of the front proxy is public. The client proves its key at the end of the
	// handshake.
	if err := third.handshakeDone(true); err != nil {
		t.Fatal(err)
	}
	go accept()
	if _, err := dial().Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("a connection beside one that has not proved its key: got %v, want it closed", err)
	}
	third.establish()
	third.establish()
	dial()
	fourth := (<-accepted).(*connection)
	if err := fourth.handshakeDone(false); err != nil {
		t.Fatal(err)
	}
	fourth.establish()
	go accept()
	dial()
	if err := (<-accepted).(*connection).handshakeDone(false); err == nil {
		t.Error("a second connection of a client that is not the front proxy was let in")
	}
}

// TestHandshakesWait checks that the server reads from a connection beyond the limit when another
// handshake ends, for a limited time.
func TestHandshakesWait(t *testing.T) {
	for name, end := range map[string]func(*connection){
		"established": func(c *connection) { c.establish() },
		"closed":      func(c *connection) { _ = c.Close() },
		"other":       func(c *connection) { _ = c.handshakeDone(false) }, // counted as such from then on
		"neither":     func(*connection) {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				handshakes := fairness.New(fairness.Limits{PerKey: 1, Queued: 1})
				others := fairness.New(fairness.Limits{PerKey: 1})
				read := func() (*connection, <-chan error) {
					client, server := net.Pipe()
					c, done := newConnection(server, handshakes, others, nil), make(chan error, 1)
					c.frontProxy.Store(true)
					go func() { _, _ = client.Write([]byte("x")) }()
					go func() {
						_, err := c.Read(make([]byte, 1))
						done <- err
					}()
					synctest.Wait()
					return c, done
				}
				first, done := read()
				if err := <-done; err != nil {
					t.Fatal(err)
				}
				second, done := read()
				if len(done) > 0 {
					t.Fatalf("the server read from a second connection beside the first: %v", <-done)
				}
				end(first)
				err := <-done
				if wants := name == "neither"; wants != errors.Is(err, context.DeadlineExceeded) || wants != (err != nil) {
					t.Errorf("the second connection: got %v, want an error: %t", err, wants)
				}
				for _, c := range []*connection{first, second} {
					_ = c.Close()
				}
				release, err := handshakes.Take(t.Context(), "pipe")
				if err != nil {
					t.Fatalf("a handshake after both ended: %v", err)
				}
				release()
			})
		})
	}
}

// TestOtherBuffer checks that the kernel stores little of what a client does not read.
func TestOtherBuffer(t *testing.T) {
	const most = 512 << 10 // twice the buffer, and the buffer of the client
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	client, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
		t.Fatal(err)
	}
	server, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	one := func() *fairness.Slots { return fairness.New(fairness.Limits{PerKey: 1}) }
	c := newConnection(server, one(), one(), nil)
	defer c.Close()
	if err := c.handshakeDone(false); err != nil {
		t.Fatal(err)
	}
	if err := c.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	if written, err := c.Write(make([]byte, 16<<20)); written > most || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("wrote %d KiB, %v, want at most %d KiB", written>>10, err, most>>10)
	}
}

// TestHandshakeLimit checks that a client can send a limited number of bytes until it has
// proved its key.
func TestHandshakeLimit(t *testing.T) {
	for name, tc := range map[string]struct {
		prepare func(*connection)
		want    int
	}{
		"in the handshake": {func(*connection) {}, maxHandshake},
		"identified":       {func(c *connection) { _ = c.handshakeDone(true) }, maxHandshakeBytes},
		"established":      {func(c *connection) { _ = c.handshakeDone(true); c.establish() }, 4 * maxHandshakeBytes},
	} {
		t.Run(name, func(t *testing.T) {
			client, server := net.Pipe()
			defer client.Close()
			one := func() *fairness.Slots { return fairness.New(fairness.Limits{PerKey: 1}) }
			c := newConnection(server, one(), one(), nil)
			tc.prepare(c)
			go func() {
				_, _ = client.Write(make([]byte, 4*maxHandshakeBytes))
				_ = client.Close()
			}()
			got, piece := 0, make([]byte, 1<<10)
			for err := error(nil); err == nil; {
				var n int
				n, err = c.Read(piece)
				got += n
			}
			_ = c.Close()
			if got != tc.want {
				t.Errorf("got %d bytes, want %d", got, tc.want)
			}
		})
	}
}

// TestByteRateLimit checks that clients share a limit of bytes per second, except the front proxy,
// and that a connection that waits can be closed.
func TestByteRateLimit(t *testing.T) {
	for name, tc := range map[string]struct {
		frontProxy, established, closes bool
		want                            time.Duration
	}{
		"others":                   {false, true, false, 4 * time.Second},
		"others, the first head":   {false, false, false, 4 * time.Second},
		"front proxy":              {true, true, false, 0},
		"front proxy, first frame": {true, false, false, 0},
		"closed":                   {false, true, true, 500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bytes, began := rate.NewLimiter(100, 200), time.Now()
				two := func() *fairness.Slots { return fairness.New(fairness.Limits{PerKey: 2}) }
				handshakes, others := two(), two()
				var all sync.WaitGroup
				for range 2 {
					client, server := net.Pipe()
					c := newConnection(server, handshakes, others, bytes)
					if err := c.handshakeDone(tc.frontProxy); err != nil {
						t.Error(err)
					}
					if tc.established {
						c.establish()
					}
					all.Go(func() {
						for range 3 {
							_, _ = client.Write(make([]byte, 100))
						}
						_ = client.Close()
					})
					all.Go(func() {
						if _, err := io.Copy(io.Discard, c); (err != nil) != tc.closes {
							t.Errorf("got the error %v, want one: %t", err, tc.closes)
						}
					})
					if tc.closes {
						time.AfterFunc(tc.want, func() { _ = c.Close() })
					}
				}
				all.Wait()
				if took := time.Since(began); took != tc.want {
					t.Errorf("600 bytes took %s, want %s", took, tc.want)
				}
			})
		})
	}
}
