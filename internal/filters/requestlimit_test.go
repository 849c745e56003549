// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// closing records whether a body was closed.
type closing struct {
	io.Reader
	closed bool
}

func (c *closing) Close() error {
	c.closed = true
	return nil
}

// proxyKey marks the context of a request from the front proxy.
type proxyKey struct{}

// TestLimitRequests checks that an address may have a limited number of concurrent requests,
// except those of the front proxy, and that a body that no handler reads is dropped.
func TestLimitRequests(t *testing.T) {
	under, end := make(chan struct{}), make(chan struct{})
	handler := WithRequestLimit(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/hold" {
			under <- struct{}{}
			<-end
		}
		data, _ := io.ReadAll(req.Body)
		fmt.Fprintf(w, "read %d", len(data))
	}), func(ctx context.Context) bool { return ctx.Value(proxyKey{}) != nil }, testCodecs)
	send := func(method, path, from string, credentials, proxy bool) (response string, dropped bool) {
		body := &closing{Reader: strings.NewReader("four")}
		ctx := t.Context()
		if proxy {
			ctx = context.WithValue(ctx, proxyKey{}, true)
		}
		req := httptest.NewRequestWithContext(ctx, method, path, body)
		req.ProtoMajor, req.RemoteAddr, req.TLS = 2, from, &tls.ConnectionState{}
		if credentials {
			req.TLS.PeerCertificates = []*x509.Certificate{{}}
		}
		rec := httptest.NewRecorder()
		handler.ServeHTTP(rec, req)
		return fmt.Sprintf("%d %.6s", rec.Code, rec.Body), body.closed
	}
	want := func(what, wantResponse string, wantDropped bool, response string, dropped bool) {
		t.Helper()
		if !strings.HasPrefix(response, wantResponse) || dropped != wantDropped {
			t.Errorf("%s: got %s, dropped %t; want %s, %t", what, response, dropped, wantResponse, wantDropped)
		}
	}
	for i := range maxAddressRequests {
		go send(http.MethodPost, "/hold", fmt.Sprintf("192.0.2.1:%d", i+1), true, false)
		<-under
	}
	defer close(end)
	response, dropped := send(http.MethodPost, "/", "192.0.2.1:999", true, false)
	want("one more of the address", "429", true, response, dropped)
	response, dropped = send(http.MethodPost, "/", "192.0.2.2:1", true, false)
	want("another address", "200 read 4", false, response, dropped)
	response, dropped = send(http.MethodGet, "/", "192.0.2.2:999", true, false)
	want("a read with a body", "200 read 0", true, response, dropped)
	response, dropped = send(http.MethodPost, "/", "192.0.2.2:999", false, false)
	want("a write without credentials", "200 read 0", true, response, dropped)
	response, dropped = send(http.MethodPost, "/", "192.0.2.1:1000", true, true)
	want("the front proxy's connection", "200 read 4", false, response, dropped)
	response, dropped = send(http.MethodPost, "/", "192.0.2.1:1002", true, false)
	want("another connection of its address", "429", true, response, dropped)
}
