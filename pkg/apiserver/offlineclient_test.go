// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// offlineClient reuses its connection for several requests.
type offlineClient struct {
	http.Client
	address string
	dialed  atomic.Int32
	http2   bool
}

func (s *offline) client(protocol string) *offlineClient {
	c := &offlineClient{address: s.address, http2: protocol == "HTTP/2.0"}
	dialer := &net.Dialer{}
	transport := &http.Transport{TLSClientConfig: s.tls.Clone(), ForceAttemptHTTP2: c.http2}
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		c.dialed.Add(1)
		return dialer.DialContext(ctx, network, address)
	}
	c.Transport, c.Timeout = transport, time.Minute
	return c
}

func (c *offlineClient) major() int {
	if c.http2 {
		return 2
	}
	return 1
}

// try returns the status code, or "cut" for a response that is aborted.
func (c *offlineClient) try(t *testing.T, method, path, body string) string {
	status, data, err := c.do(t.Context(), method, path, body)
	for _, inside := range []string{secret, "goroutine ", ".go:"} {
		if strings.Contains(data, inside) {
			t.Errorf("%s %s: the response contains %q: %s", method, path, inside, data)
		}
	}
	if err != nil {
		return "cut"
	}
	return strconv.Itoa(status)
}

func (c *offlineClient) want(t *testing.T, method, path, body, want string) {
	t.Helper()
	if got := c.try(t, method, path, body); got != want {
		t.Errorf("%s %s: got %s, want %s", method, path, got, want)
	}
}

func (c *offlineClient) get(t *testing.T, path string) string {
	_, data, err := c.do(t.Context(), http.MethodGet, path, "")
	if err != nil {
		return fmt.Sprint(err)
	}
	return data
}

func (c *offlineClient) do(ctx context.Context, method, path, body string) (int, string, error) {
	return c.send(ctx, method, path, body, http.Header{"X-Remote-User": {"ann"}, "Content-Type": {"application/json"}})
}

// send sends a request with a header, and returns the status code and the body of the response.
func (c *offlineClient) send(ctx context.Context, method, path, body string, header http.Header) (int, string, error) {
	req, err := http.NewRequestWithContext(ctx, method, "https://"+c.address+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	req.Header = header
	resp, err := c.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(data), err
}
