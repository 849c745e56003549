// SPDX-License-Identifier: Apache-2.0

package direct

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"example.com/extension-apiserver/pkg/envtest"

	"github.com/google/go-cmp/cmp"

	"example.com/extension-apiserver/internal/certs"
)

// Modes of the connection to etcd.
const (
	passes  = "passes"
	down    = "down"    // no connection
	silent  = "silent"  // no data passes
	garbage = "garbage" // etcd's responses are random bytes
)

// wire is a proxy to etcd that a test controls.
type wire struct {
	address string
	mu      sync.Mutex
	mode    string
	open    map[net.Conn]bool
}

func newWire(t *testing.T, target string) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{address: l.Addr().String(), mode: passes, open: map[net.Conn]bool{}}
	t.Cleanup(func() {
		_ = l.Close()
		w.set(down)
	})
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			etcd, err := net.Dial("tcp", target)
			if err != nil || !w.add(conn, etcd) {
				conn.Close()
				continue
			}
			go w.carry(etcd, conn, false)
			go w.carry(conn, etcd, true)
		}
	}()
	return w
}

// set changes the mode and breaks all connections: data in transit is lost.
func (w *wire) set(mode string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mode = mode
	for conn := range w.open {
		conn.Close()
		delete(w.open, conn)
	}
}

func (w *wire) add(conns ...net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, conn := range conns {
		w.open[conn] = w.mode != down
	}
	return w.mode != down
}

// carry copies what the mode lets through.
func (w *wire) carry(to io.WriteCloser, from io.Reader, responses bool) {
	defer to.Close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		w.mu.Lock()
		mode := w.mode
		w.mu.Unlock()
		if mode == garbage && responses {
			_, _ = rand.Read(buffer[:n])
		}
		if mode != silent {
			_, writeErr := to.Write(buffer[:n])
			err = errors.Join(err, writeErr)
		}
		if err != nil {
			return
		}
	}
}

// TestEtcdFails checks that the server reports no success while etcd is down, silent or sends
// random bytes. The server reports what is wrong, and works again without a restart. Nothing was
// changed meanwhile.
func TestEtcdFails(t *testing.T) {
	t.Parallel()
	client, err := shared.EtcdClient(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	w := newWire(t, strings.TrimPrefix(client.Endpoints()[0], "https://"))
	file := func(dir, name string) string { return filepath.Join(shared.PKI(), dir, name) }
	s := start(t, newRelay(t), "--etcd-servers=https://"+w.address, "--etcd-prefix=/etcd-fails",
		"--etcd-cafile="+file("control-plane-ca", certs.CertFile),
		"--etcd-certfile="+file("workshop-etcd-client", certs.CertFile),
		"--etcd-keyfile="+file("workshop-etcd-client", certs.KeyFile),
		"--request-timeout=5s", "--etcd-healthcheck-timeout=1s", "--etcd-readycheck-timeout=1s")
	s.waitReady(t)
	admin := issue(t, readCA(t, "client-ca"), "admin", "system:masters")
	attempt := func(method, path, body string) response { return s.try(admin, method, path, nil, body) }
	attempt(http.MethodPost, protected, gadget("kept")).want(t, "create", http.StatusCreated)
	before := attempt(http.MethodGet, protected+"/kept", "")
	for _, mode := range []string{down, silent, garbage} {
		t.Run(mode, func(t *testing.T) {
			w.set(mode)
			var all sync.WaitGroup
			for _, request := range []struct{ method, path, body string }{
				{http.MethodGet, protected + "/kept", ""}, {http.MethodGet, protected, ""},
				{http.MethodPost, protected, gadget("new")},
				{http.MethodPut, protected + "/kept", strings.Replace(before.body, `"none"`, `"changed"`, 1)},
				{http.MethodDelete, protected + "/kept", ""},
				{http.MethodDelete, protected, ""},
			} {
				all.Go(func() {
					// 0: the response is aborted at the request timeout. That is how the library
					// works, and it is not a success. 429: the user has too many other requests in
					// flight.
					if got := attempt(request.method, request.path, request.body); got.status != 0 &&
						got.status != http.StatusTooManyRequests && got.status < http.StatusInternalServerError {
						t.Errorf("%s %s: %s, want 5xx", request.method, request.path, got)
					}
				})
			}
			all.Wait()
			shared.Eventually(t, "the server to report the fault", envtest.WaitTimeout, func(context.Context) error {
				if got := attempt(http.MethodGet, "/readyz?verbose", ""); got.status != http.StatusInternalServerError ||
					!strings.Contains(got.body, "[-]etcd failed") {
					return fmt.Errorf("/readyz: %s, want the check etcd to fail", got)
				}
				return nil
			})
			w.set(passes)
			s.waitReady(t)
			shared.Eventually(t, "responses to requests again", envtest.WaitTimeout, func(context.Context) error {
				got := attempt(http.MethodGet, protected+"/kept", "")
				if diff := cmp.Diff(before.body, got.body); diff != "" || got.status != http.StatusOK {
					return fmt.Errorf("%d (-before +after):\n%s", got.status, diff)
				}
				return nil
			})
			if got := attempt(http.MethodGet, protected, ""); strings.Count(got.body, `"name":"`) != 1 {
				t.Errorf("gadgets afterwards: %s, want only the one from before", got)
			}
		})
	}
}
