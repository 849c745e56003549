// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"example.com/extension-apiserver/test/env"
)

var shared *env.Environment

func TestMain(m *testing.M) {
	os.Exit(env.Main(m, env.Options{}, &shared))
}

const patience = time.Minute

// dialTLS connects to our server's own port, which it trusts like any client.
func dialTLS(ctx context.Context, change func(*tls.Config)) (*tls.Conn, error) {
	config, err := rest.TLSConfigFor(shared.Servers[0].Config(shared))
	if err != nil {
		return nil, err
	}
	if change != nil {
		change(config)
	}
	conn, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", strings.TrimPrefix(shared.Servers[0].URL, "https://"))
	if err != nil {
		return nil, err
	}
	return conn.(*tls.Conn), nil
}

func mustDial(t *testing.T, change func(*tls.Config)) *tls.Conn {
	t.Helper()
	conn, err := dialTLS(t.Context(), change)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// healthy is the positive control: the same server still answers others.
func healthy(t *testing.T) {
	t.Helper()
	client, err := shared.Servers[0].Client(shared)
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, shared.Servers[0].URL+"/healthz", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatalf("health: %v", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("health: got %s, want 200", resp.Status)
	}
}

// memory is the server's VmRSS in MiB.
func memory(t *testing.T) int {
	t.Helper()
	kib, err := shared.Servers[0].VmRSS()
	if err != nil {
		t.Fatal(err)
	}
	return kib >> 10
}

// grownBy fails when the server holds so many MiB more than before.
func grownBy(t *testing.T, before, bound int) {
	t.Helper()
	after := memory(t)
	t.Logf("VmRSS: %d MiB before, %d MiB after", before, after)
	if after > before+bound {
		t.Errorf("VmRSS grew from %d to %d MiB, want at most %d MiB more", before, after, bound)
	}
}

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
				fmt.Fprintf(w, "GET /healthz HTTP/1.1\r\nHost: %s\r\n", env.ServerName)
				for i := range tc.count {
					fmt.Fprintf(w, "X-Remote-Extra-%d: %s\r\n", i, tc.value)
				}
				fmt.Fprint(w, "\r\n")
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
	closed := make(chan error, 1)
	go func() {
		_, err := io.ReadAll(conn)
		closed <- err
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
