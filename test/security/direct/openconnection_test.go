// SPDX-License-Identifier: Apache-2.0

package direct

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"example.com/extension-apiserver/pkg/envtest"

	"example.com/extension-apiserver/internal/certs"
)

// oneConnection returns a transport that connects once; a second attempt fails. So its requests
// use a connection that was opened before an event.
func oneConnection(t *testing.T, cert *tls.Certificate) *http.Transport {
	t.Helper()
	config, err := clientTLS(cert)
	if err != nil {
		t.Fatal(err)
	}
	connected := false
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			if connected {
				return nil, fmt.Errorf("the connection was closed")
			}
			connected = true
			return (&net.Dialer{}).DialContext(ctx, network, address)
		}}
	t.Cleanup(transport.CloseIdleConnections)
	return transport
}

// TestS12OpenConnection checks that a client that is no longer trusted is rejected with its next
// request, even on an open connection with many successful requests. The causes are a change of
// the trust, its removal, or the expiry of the certificate.
func TestS12OpenConnection(t *testing.T) {
	t.Parallel()
	r := newRelay(t)
	m := newTrustMap(t, r)
	s := start(t, r)
	s.waitReady(t)
	trusted := m.data()
	get := func(transport *http.Transport) response {
		return s.send(transport, http.MethodGet, protected, forged(), "")
	}
	for _, tc := range []struct {
		name   string
		change func(data map[string]string)
	}{
		{"another CA", func(data map[string]string) {
			data["requestheader-client-ca-file"] = string(certs.Bundle{newCA(t, "front-proxy-ca").Certificate}.PEM())
		}},
		{"another name", func(data map[string]string) { data["requestheader-allowed-names"] = `["another-name"]` }},
		{"no CA", func(data map[string]string) { delete(data, "requestheader-client-ca-file") }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			open := oneConnection(t, frontProxy(t))
			for range 5 {
				get(open).want(t, "while it is trusted", http.StatusOK)
			}
			data := m.data()
			tc.change(data)
			m.set(data)
			shared.Eventually(t, "the open connection to be refused", envtest.WaitTimeout, func(context.Context) error {
				if got := get(open); got.status != http.StatusUnauthorized {
					return fmt.Errorf("%s, want 401", got)
				}
				return nil
			})
			m.set(trusted)
			// A rejection over HTTP/2 closes the connection.
			shared.Eventually(t, "a new connection to be trusted again", envtest.WaitTimeout, func(context.Context) error {
				if got := s.get(t, frontProxy(t), forged()); got.status != http.StatusOK {
					return fmt.Errorf("%s, want 200", got)
				}
				return nil
			})
		})
	}
	t.Run("expiry", func(t *testing.T) {
		pair, err := readCA(t, certs.FrontProxyCADir).IssueClient(
			certs.ClientOptions{User: certs.FrontProxyUser, Lifetime: 5 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		open := oneConnection(t, pairOf(pair))
		get(open).want(t, "before it expires", http.StatusOK)
		shared.Eventually(t, "the expired certificate to be refused", envtest.WaitTimeout, func(context.Context) error {
			sent := time.Now()
			got := get(open)
			if got.status == http.StatusOK && sent.Before(pair.Certificate.NotAfter) {
				return fmt.Errorf("not expired yet")
			}
			// The rejection ends the connection, so this is the first rejected request. A request
			// that is sent before the expiry may be authenticated after it.
			got.want(t, "after it expired", http.StatusUnauthorized)
			if !time.Now().After(pair.Certificate.NotAfter) {
				t.Errorf("refused before %v, when it expires", pair.Certificate.NotAfter)
			}
			return nil
		})
	})
}
