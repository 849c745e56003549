// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/component-base/metrics/testutil"
)

// echoes starts a server whose handler takes over the connection and then runs session. returned
// receives a value when the filters of a request have ended.
func echoes(t *testing.T, l *LongRunning, returned chan<- string,
	session func(context.Context, net.Conn)) *httptest.Server {
	t.Helper()
	connect := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/panic" {
			panic("in the handler")
		}
		if req.Header.Get("Upgrade") == "" || req.URL.Path == "/plain" {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		session(req.Context(), conn)
	})
	chain := l.WithUpgradeLimit(connect, testCodecs)
	chain = l.admit(t, chain)
	ts := httptest.NewServer(WithDeadlines(WithPanicRecovery(
		http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			defer func() { returned <- req.URL.Path }()
			info := &genericapirequest.RequestInfo{IsResourceRequest: true, Verb: "get", Resource: "gadgets",
				Subresource: "console"}
			ctx := genericapirequest.WithRequestInfo(req.Context(), info)
			ctx = genericapirequest.WithUser(ctx, &user.DefaultInfo{Name: "ann"})
			chain.ServeHTTP(w, req.WithContext(ctx))
		}), l.panics), time.Second, notFrontProxy))
	t.Cleanup(ts.Close)
	return ts
}

// upgrade requests an upgrade, and returns the connection and the status. Status 0 means that the
// connection was closed.
func upgrade(t *testing.T, ts *httptest.Server, path string) (conn net.Conn, status int) {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", ts.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(conn,
		"GET %s HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\nAuthorization: Bearer ann\r\n\r\n",
		path); err != nil {
		t.Fatal(err)
	}
	// The reader must not buffer beyond the response: the following data belongs to the session.
	resp, err := http.ReadResponse(bufio.NewReaderSize(conn, 16), nil)
	if err != nil {
		return conn, 0
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusTooManyRequests && resp.Header.Get("Retry-After") == "" {
		t.Error("429 has no Retry-After")
	}
	return conn, resp.StatusCode
}

// TestDetachUpgrades checks that the filters of a request end with the upgrade, that its session
// continues for longer than they would allow, and that the session ends with its permission.
func TestDetachUpgrades(t *testing.T) {
	c := &caller{name: "ann"}
	l := newLongRunning(c)
	l.period, l.limit = 100*time.Millisecond, time.Hour
	returned, cause, goOn := make(chan string, 10), make(chan error, 10), make(chan struct{})
	ts := echoes(t, l, returned, func(ctx context.Context, conn net.Conn) {
		<-goOn
		if err := ctx.Err(); err != nil {
			t.Errorf("the context of the session: got %v, want it to continue", context.Cause(ctx))
		}
		_, err := io.WriteString(conn, "still here")
		if err != nil {
			t.Errorf("write after the deadline of the request: %v", err)
		}
		<-ctx.Done()
		cause <- context.Cause(ctx)
	})
	conn, status := upgrade(t, ts, "/")
	if status != http.StatusSwitchingProtocols {
		t.Fatalf("upgrade: got %d, want 101", status)
	}
	<-returned
	// Longer than the timeout of the request, which is also its deadline for writes.
	<-time.After(1500 * time.Millisecond)
	close(goOn)
	said := make([]byte, len("still here"))
	if _, err := io.ReadFull(conn, said); err != nil {
		t.Fatalf("read from the session: %v", err)
	}
	c.denied = errors.New("role gone")
	if err := <-cause; !strings.Contains(fmt.Sprint(err), "revoked: role gone") {
		t.Errorf("the session ended with %v, want the permission that was removed", err)
	}
}

// TestUpgradesOfUser checks that a user may have a limited number of upgraded connections, and
// that one that ends frees its slot.
func TestUpgradesOfUser(t *testing.T) {
	returned, end := make(chan string, 2*userUpgrades), make(chan struct{})
	ts := echoes(t, newLongRunning(&caller{name: "ann"}), returned, func(context.Context, net.Conn) { <-end })
	for i := range userUpgrades {
		if _, status := upgrade(t, ts, "/"); status != http.StatusSwitchingProtocols {
			t.Fatalf("upgrade %d: got %d, want 101", i, status)
		}
	}
	_, status := upgrade(t, ts, "/")
	if status != http.StatusTooManyRequests {
		t.Errorf("one more: got %d, want 429 with Retry-After", status)
	}
	end <- struct{}{}
	for deadline := time.Now().Add(time.Minute); ; {
		if _, status := upgrade(t, ts, "/"); status == http.StatusSwitchingProtocols {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("no upgrade although a session ended")
		}
	}
	close(end)
}

// TestUpgradeWithoutSession checks that requests that are not upgraded end as usual, and that a
// panic affects no other request.
func TestUpgradeWithoutSession(t *testing.T) {
	returned, ended := make(chan string, 10), make(chan struct{}, 10)
	ts := echoes(t, newLongRunning(&caller{name: "ann"}), returned, func(context.Context, net.Conn) {
		defer func() { ended <- struct{}{} }()
		panic("in the session")
	})
	if _, status := upgrade(t, ts, "/plain"); status != http.StatusTeapot {
		t.Errorf("not upgraded: got %d, want the response of the handler", status)
	}
	if _, status := upgrade(t, ts, "/panic"); status != 0 {
		t.Errorf("panic before the upgrade: got %d, want the connection closed", status)
	}
	before, err := testutil.GetCounterMetricValue(PanicCounter("test"))
	if err != nil {
		t.Fatal(err)
	}
	if _, status := upgrade(t, ts, "/"); status != http.StatusSwitchingProtocols {
		t.Errorf("upgrade: got %d, want 101", status)
	}
	<-ended
	for deadline := time.Now().Add(time.Minute); ; {
		after, err := testutil.GetCounterMetricValue(PanicCounter("test"))
		if err != nil {
			t.Fatal(err)
		}
		if after == before+1 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("panics counted: got %v, want %v", after, before+1)
		}
	}
	if _, status := upgrade(t, ts, "/plain"); status != http.StatusTeapot {
		t.Errorf("after the panic: got %d, want the server to continue", status)
	}
}

// TestUpgradePace checks that small frames in all connections of a user share a pace, and that a
// connection whose session ends does not wait.
func TestUpgradePace(t *testing.T) {
	const times = 2 * userPace / readCost
	for name, tc := range map[string]struct {
		use   func(*pacedConn) error
		other string
		ended bool
		want  time.Duration
	}{
		"reads": {func(c *pacedConn) error {
			_, err := c.Read(make([]byte, 1))
			return err
		}, "ann", false, 3 * time.Second},
		"reads of two users": {func(c *pacedConn) error {
			_, err := c.Read(make([]byte, 1))
			return err
		}, "bob", false, time.Second},
		"writes": {func(c *pacedConn) error {
			_, err := c.Write([]byte("x"))
			return err
		}, "ann", false, 3 * time.Second},
		"writes of an ended session": {func(c *pacedConn) error {
			_, err := c.Write([]byte("x"))
			return err
		}, "ann", true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tc.ended {
					cancel()
				}
				all, began := &paces{users: map[string]*pace{}}, time.Now()
				var users sync.WaitGroup
				for _, name := range []string{"ann", tc.other} {
					own, leave := all.enter(name)
					c := &pacedConn{endless{}, bytes.NewReader([]byte("early")), ctx, own}
					users.Go(func() {
						defer leave()
						for range times {
							if err := tc.use(c); err != nil {
								t.Error(err)
							}
						}
					})
				}
				users.Wait()
				if took := time.Since(began).Round(100 * time.Millisecond); took != tc.want {
					t.Errorf("%d times in each of two connections: took %s, want %s", times, took, tc.want)
				}
				if len(all.users) > 0 {
					t.Errorf("%d users are left, want none", len(all.users))
				}
			})
		})
	}
}

// endless is a connection that reads and writes any number of bytes.
type endless struct{ net.Conn }

func (endless) Read(p []byte) (int, error)  { return len(p), nil }
func (endless) Write(p []byte) (int, error) { return len(p), nil }
