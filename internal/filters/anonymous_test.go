// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"
)

// counting is an HTTP/2 server with a client. It counts the connections that the client opens.
type counting struct {
	*httptest.Server
	connections atomic.Int32
}

func startCounting(t *testing.T, handler http.Handler) *counting {
	t.Helper()
	s := &counting{Server: httptest.NewUnstartedServer(handler)}
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	s.Client().Transport.(*http.Transport).DialContext = func(ctx context.Context, network,
		_ string) (net.Conn, error) {
		s.connections.Add(1)
		return (&net.Dialer{}).DialContext(ctx, network, s.Listener.Addr().String())
	}
	return s
}

func (s *counting) get(ctx context.Context, t *testing.T, path, authorization string) error {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", authorization)
	resp, err := s.Client().Do(req)
	if err == nil {
		err = resp.Body.Close()
	}
	return err
}

// TestS38CancelledRequest checks that a request that the client cancels before the response closes
// the connection if the request has no credentials. The handler behaves like the library's timeout.
func TestS38CancelledRequest(t *testing.T) {
	for _, tc := range []struct {
		name, authorization string
		closed              bool
	}{{"without credentials", "", true}, {"with credentials", "Bearer x", false}} {
		t.Run(tc.name, func(t *testing.T) {
			began, ended := make(chan struct{}, 1), make(chan struct{}, 1)
			s := startCounting(t, WithAnonymousClose(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				if req.URL.Path == "/slow" {
					began <- struct{}{}
					<-req.Context().Done()
					w.WriteHeader(http.StatusGatewayTimeout)
					ended <- struct{}{}
				}
			})))
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				<-began
				cancel()
			}()
			if err := s.get(ctx, t, "/slow", tc.authorization); err == nil {
				t.Fatal("the request got a response, want it cancelled")
			}
			<-ended
			// Requests with credentials never close a connection, so a second connection results
			// from the cancelled request.
			for deadline := time.Now().Add(30 * time.Second); s.connections.Load() == 1 &&
				time.Now().Before(deadline); {
				for range 10 {
					if err := s.get(t.Context(), t, "/", "Bearer x"); err != nil {
						t.Fatal(err)
					}
				}
				if !tc.closed {
					break
				}
			}
			if closed := s.connections.Load() > 1; closed != tc.closed {
				t.Errorf("the connection was closed: %t, want %t", closed, tc.closed)
			}
		})
	}
}
