// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/extension-apiserver/test/env"
)

// TestS35TLS: what can be read or changed on the way is not spoken.
func TestS35TLS(t *testing.T) {
	healthy(t)
	for _, tc := range []struct {
		name   string
		change func(*tls.Config)
		ok     bool
	}{
		{"TLS 1.3", func(c *tls.Config) { c.MinVersion = tls.VersionTLS13 }, true},
		{"TLS 1.2", func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }, true},
		{"TLS 1.1", func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS10, tls.VersionTLS11 }, false},
		{"TLS 1.0", func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS10, tls.VersionTLS10 }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			conn, err := dialTLS(t.Context(), tc.change)
			if (err == nil) != tc.ok {
				t.Errorf("handshake: %v, want success: %t", err, tc.ok)
			}
			if err == nil {
				_ = conn.Close()
			}
		})
	}
	for _, suite := range tls.InsecureCipherSuites() {
		t.Run(suite.Name, func(t *testing.T) {
			conn, err := dialTLS(t.Context(), func(c *tls.Config) {
				c.MinVersion, c.MaxVersion, c.CipherSuites = 0, tls.VersionTLS12, []uint16{suite.ID}
			})
			if err == nil {
				_ = conn.Close()
				t.Errorf("handshake with a weak cipher suite succeeded, want it refused")
			}
		})
	}
}

// TestS36HeaderFlood: more than 1 MiB of headers is refused before anything is done with them.
func TestS36HeaderFlood(t *testing.T) {
	before := memory(t)
	for _, tc := range []struct {
		name  string
		count int
		value string
		want  int
	}{
		{"few", 1, "x", http.StatusOK},
		{"one of 2 MiB", 1, strings.Repeat("x", 2<<20), http.StatusRequestHeaderFieldsTooLarge},
		{"200,000", 200_000, "x", http.StatusRequestHeaderFieldsTooLarge},
	} {
		t.Run(tc.name, func(t *testing.T) {
			conn := mustDial(t, nil)
			if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
				t.Fatal(err)
			}
			go func() {
				w := bufio.NewWriter(conn)
				_, _ = fmt.Fprintf(w, "GET /healthz HTTP/1.1\r\nHost: %s\r\n", env.ServerName)
				for i := range tc.count {
					_, _ = fmt.Fprintf(w, "X-Remote-Extra-%d: %s\r\n", i, tc.value)
				}
				_, _ = fmt.Fprint(w, "\r\n")
				// The server may have hung up in the middle.
				_ = w.Flush()
			}()
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				// It answers and closes while we still write; the answer can be lost to the reset, the refusal cannot.
				if tc.want == http.StatusOK {
					t.Fatal(err)
				}
				return
			}
			defer resp.Body.Close()
			if resp.StatusCode != tc.want {
				t.Errorf("got %s, want %d", resp.Status, tc.want)
			}
		})
	}
	healthy(t)
	grownBy(t, before, 64)
}

// TestS37SlowHeaders: a client that sends a byte now and then does not hold its connection for longer than 32 s.
func TestS37SlowHeaders(t *testing.T) {
	t.Parallel()
	conn := mustDial(t, nil)
	began := time.Now()
	if _, err := io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: x\r\n"); err != nil {
		t.Fatal(err)
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_, _ = io.ReadAll(conn)
	}()
	tick := time.NewTicker(5 * time.Second)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-closed:
			if i == 0 {
				t.Errorf("closed after %s, want some patience", time.Since(began))
			}
			return
		case <-tick.C:
			// Writing fails once the server has hung up; the reader tells.
			_, _ = io.WriteString(conn, "X-"+strconv.Itoa(i)+": x\r\n")
		case <-time.After(patience):
			t.Fatal("the connection is still open")
		}
		if time.Since(began) > patience {
			t.Fatalf("the connection is open after %s of headers, want it closed after 32 s", time.Since(began))
		}
	}
}

// TestS40Connections: idle connections cost little, and others are served beside them.
func TestS40Connections(t *testing.T) {
	before := memory(t)
	// One address has fewer than 28,232 ports and a process here 20,000 open files.
	const count, atOnce = 5000, 16
	conns := make(chan net.Conn, count)
	todo := make(chan struct{}, count)
	for range count {
		todo <- struct{}{}
	}
	close(todo)
	errs := make(chan error, atOnce)
	var dialers sync.WaitGroup
	for range atOnce {
		dialers.Go(func() {
			for range todo {
				conn, err := dialTLS(t.Context(), nil)
				if err != nil {
					errs <- err
					return
				}
				conns <- conn
			}
		})
	}
	dialers.Wait()
	close(conns)
	close(errs)
	t.Cleanup(func() {
		for conn := range conns {
			_ = conn.Close()
		}
	})
	var all []error
	for err := range errs {
		all = append(all, err)
	}
	if err := errors.Join(all...); err != nil || len(conns) != count {
		t.Fatalf("%d of %d connections: %v", len(conns), count, err)
	}
	healthy(t)
	// 60 KiB for each: buffers of TLS and HTTP, and two stacks.
	grownBy(t, before, count*60>>10)
}
