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
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"example.com/extension-apiserver/pkg/envtest"
)

// TestS35TLS checks that the server rejects TLS versions and cipher suites that do not protect the
// connection.
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

// TestS36HeaderFlood checks that the server rejects more than 32 KiB of headers over HTTP/1.1
// before it processes them.
func TestS36HeaderFlood(t *testing.T) {
	check := peaks(t, 64)
	for _, tc := range []struct {
		name  string
		count int
		value string
		want  int
	}{
		{"few", 1, "x", http.StatusOK},
		{"100 extras", 100, strings.Repeat("x", 240), http.StatusOK},
		{"600 extras", 600, "x", http.StatusRequestHeaderFieldsTooLarge},
		{"one of 40 KiB", 1, strings.Repeat("x", 40<<10), http.StatusRequestHeaderFieldsTooLarge},
		{"one of 2 MiB", 1, strings.Repeat("x", 2<<20), http.StatusRequestHeaderFieldsTooLarge},
		{"200,000", 200_000, "x", http.StatusRequestHeaderFieldsTooLarge},
	} {
		t.Run(tc.name, func(t *testing.T) {
			conn := mustDial(t, nil)
			if err := conn.SetDeadline(time.Now().Add(envtest.WaitTimeout)); err != nil {
				t.Fatal(err)
			}
			go func() {
				w := bufio.NewWriter(conn)
				_, _ = fmt.Fprintf(w, "GET /healthz HTTP/1.1\r\nHost: %s\r\n", envtest.ServerName)
				for i := range tc.count {
					_, _ = fmt.Fprintf(w, "X-Remote-Extra-%d: %s\r\n", i, tc.value)
				}
				_, _ = fmt.Fprint(w, "\r\n")
				// The server may have closed the connection meanwhile.
				_ = w.Flush()
			}()
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				// The server responds and closes while the test still writes. A reset can lose the
				// response, but the request is refused in any case.
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
	check()
}

// TestS37SlowHeaders checks that the server closes a connection whose client sends headers slowly
// within 32 s.
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
				t.Errorf("closed after %s, want some envtest.WaitTimeout", time.Since(began))
			}
			return
		case <-tick.C:
			// A write fails once the server has closed the connection, which the reader reports.
			_, _ = io.WriteString(conn, "X-"+strconv.Itoa(i)+": x\r\n")
		case <-time.After(envtest.WaitTimeout):
			t.Fatal("the connection is still open")
		}
		if time.Since(began) > envtest.WaitTimeout {
			t.Fatalf("the connection is open after %s of headers, want it closed after 32 s", time.Since(began))
		}
	}
}

// TestS40Connections checks that the server accepts a limited number of idle connections from five
// addresses, which fits into the memory of the container. It still serves new connections from
// another address.
func TestS40Connections(t *testing.T) {
	const count, ofFirst, most, mostOfAddress, reserved = 600, 150, 100, 50, 5 * 10
	server := shared.Servers[0]
	config, err := rest.TLSConfigFor(server.Config(shared))
	if err != nil {
		t.Fatal(err)
	}
	before, err := server.Descriptors()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.ResetVmHWM(); err != nil {
		t.Fatal(err)
	}
	// The first address tries more than the limit of an address, the others more than the limit in
	// total. They connect together, because the server closes connections without a request after
	// ten seconds.
	kept := len(connect(t, config, "127.0.0.2", ofFirst))
	t.Logf("127.0.0.2: %d of %d connections were accepted", kept, ofFirst)
	if kept != mostOfAddress {
		t.Errorf("127.0.0.2: %d connections were accepted, want %d", kept, mostOfAddress)
	}
	var numbers [4]int
	var clients sync.WaitGroup
	for i := range numbers {
		clients.Go(func() {
			address, tries := fmt.Sprintf("127.0.0.%d", i+3), (count-ofFirst)/len(numbers)
			numbers[i] = len(connect(t, config, address, tries))
			t.Logf("%s: %d of %d connections were accepted", address, numbers[i], tries)
		})
	}
	clients.Wait()
	for i, number := range numbers {
		if kept += number; number > mostOfAddress {
			t.Errorf("127.0.0.%d: %d connections were accepted, want at most %d", i+3, number, mostOfAddress)
		}
	}
	// Some are kube-apiserver's.
	if kept > most+reserved || kept < most-20 {
		t.Errorf("%d connections were accepted, want at most %d and nearly as many", kept, most+reserved)
	}
	for range 20 {
		healthy(t)
	}
	during, err := server.Descriptors()
	if err != nil {
		t.Fatal(err)
	}
	peak, err := server.VmHWM()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d connections were accepted; %d descriptors before, %d with them; VmHWM %d MiB", kept, before,
		during, peak>>10)
	if during > before+most+reserved+50 {
		t.Errorf("%d descriptors, %d before; want at most %d more", during, before, most+reserved+50)
	}
	if peak > memoryLimit {
		t.Errorf("VmHWM is %d MiB, want at most %d", peak>>10, memoryLimit>>10)
	}
}

// connect tries to open so many connections from the address, and returns those that the server
// accepted.
func connect(t *testing.T, config *tls.Config, address string, tries int) []net.Conn {
	dialer := &tls.Dialer{Config: config, NetDialer: &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)},
		Timeout: envtest.WaitTimeout}}
	conns, todo := make(chan net.Conn, tries), make(chan struct{}, tries)
	for range tries {
		todo <- struct{}{}
	}
	close(todo)
	var dialers sync.WaitGroup
	for range 16 {
		dialers.Go(func() {
			for range todo {
				conn, err := dialer.DialContext(t.Context(), "tcp", shared.Servers[0].Address())
				if err == nil {
					conns <- conn
				} else if !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) &&
					!errors.Is(err, syscall.EPIPE) {
					t.Errorf("connect from %s: %v, want a connection or one that is closed before TLS", address, err)
				}
			}
		})
	}
	dialers.Wait()
	close(conns)
	var all []net.Conn
	for conn := range conns {
		t.Cleanup(func() { _ = conn.Close() })
		all = append(all, conn)
	}
	return accepted(all)
}

// accepted returns the connections that are still open after 2 s: in TLS 1.3 a client that has
// sent its part of the handshake does not know yet whether the server accepts it.
func accepted(all []net.Conn) (kept []net.Conn) {
	deadline := time.Now().Add(2 * time.Second)
	var mutex sync.Mutex
	var readers sync.WaitGroup
	for _, conn := range all {
		readers.Go(func() {
			if err := conn.SetReadDeadline(deadline); err != nil {
				return
			}
			if _, err := conn.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
				mutex.Lock()
				defer mutex.Unlock()
				kept = append(kept, conn)
			}
		})
	}
	readers.Wait()
	return kept
}
