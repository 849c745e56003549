// SPDX-License-Identifier: Apache-2.0

package serving_test

import (
	"context"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"example.com/extension-apiserver/internal/filters"
	"example.com/extension-apiserver/internal/serving"
)

// stalledConn is the connection of a client that stops reading.
type stalledConn struct {
	net.Conn
	stalled <-chan struct{}
	ctx     context.Context
}

func (c *stalledConn) Read(p []byte) (int, error) {
	select {
	case <-c.stalled:
		<-c.ctx.Done()
		return 0, c.ctx.Err()
	default:
		return c.Conn.Read(p)
	}
}

// TestS37StalledConnection checks that the handlers of an HTTP/2 connection on which nothing can
// be sent any more do not wait for it.
func TestS37StalledConnection(t *testing.T) {
	const streams, timeout, patience = 20, 500 * time.Millisecond, 30 * time.Second
	stalled, ended := make(chan struct{}), make(chan struct{}, streams)
	piece := make([]byte, 1<<20)
	client, url := serving.ServeFor(t, filters.WithDeadlines(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.(http.Flusher).Flush()
			<-stalled
			for {
				if _, err := w.Write(piece); err != nil {
					ended <- struct{}{}
					return
				}
			}
		}), timeout, serving.FromFrontProxy), timeout, func([]*x509.Certificate) bool { return false })
	user := serving.SelfSigned(t, "ann")
	c := client("HTTP/2.0", &user)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	c.Transport.(*http.Transport).DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		return &stalledConn{conn, stalled, t.Context()}, err
	}
	for range streams {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
	}
	close(stalled)
	for i := range streams {
		select {
		case <-ended:
		case <-time.After(patience):
			t.Fatalf("%d of %d handlers still send after %s", streams-i, streams, patience)
		}
	}
}

// TestContentLength checks that kube-apiserver receives the length of a short response in HTTP/2.
func TestContentLength(t *testing.T) {
	client, url := serving.ServeFor(t, filters.WithDeadlines(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "short")
		}), time.Hour, serving.FromFrontProxy), time.Hour, func([]*x509.Certificate) bool { return true })
	proxy := serving.SelfSigned(t, "front-proxy")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client("HTTP/2.0", &proxy).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.ContentLength != int64(len("short")) {
		t.Errorf("got a length of %d, want %d", resp.ContentLength, len("short"))
	}
}
