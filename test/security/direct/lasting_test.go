// SPDX-License-Identifier: Apache-2.0

package direct

import (
	"crypto/tls"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"

	"example.com/extension-apiserver/internal/certs"
)

const (
	// endOfPermission is the time within which a watch or a console ends after its user loses the
	// permission. The server reviews it every 30 s, with a jitter of 20 %, and caches a decision
	// for 10 s. The rest is for a console that waits 5 s for its client to close the connection,
	// and a busy machine.
	endOfPermission = 60 * time.Second
	// endOfTrust is the time within which they end after the user's certificate is no longer
	// trusted: at the first attempt after 75 s without a confirmation. The rest is the same.
	endOfTrust = (75 + 36 + 9) * time.Second
)

// webSocket returns the headers of a WebSocket handshake for the protocols.
func webSocket(protocols ...string) http.Header {
	return http.Header{
		"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"},
		"Sec-Websocket-Key": {"AQIDBAUGBwgJCgsMDQ4PEA=="}, "Sec-Websocket-Protocol": {strings.Join(protocols, ", ")},
	}
}

// TestS12OpenWatch checks that a watch ends when its user loses the permission, or when the user's
// certificate is no longer trusted. It continues if the front proxy's certificate is no longer
// trusted: a rotation of that CA ends no console.
func TestS12OpenWatch(t *testing.T) {
	testLongRunning(t, protected+"?watch=1", nil, http.StatusOK)
}

// TestS12OpenConsole checks the same for a console, although its connection was hijacked from the
// HTTP server.
func TestS12OpenConsole(t *testing.T) {
	testLongRunning(t, consolesOf("lasting"), webSocket("v5.channel.k8s.io"), http.StatusSwitchingProtocols)
}

func consolesOf(widget string) string {
	return "/apis/workshop.example.com/v1/namespaces/default/widgets/" + widget + "/console"
}

// testLongRunning opens the path for two users each at two servers. One user loses the permission
// or the trust; the other's request continues. All wait together. Other tests run before this one
// may continue.
func testLongRunning(t *testing.T, path string, header http.Header, status int) {
	permission := newServer(t)
	var revoked atomic.Bool
	permission.decide(t, func(spec authorizationv1.SubjectAccessReviewSpec) http.HandlerFunc {
		return reviewStatus(fmt.Sprintf(`"allowed":%t`, spec.User != "leaver" || !revoked.Load()))
	})
	permission.createWidget(t)
	permissionLeaver := permission.open(t, frontProxy(t), path, header, "leaver", status)
	permissionStayer := permission.open(t, frontProxy(t), path, header, "stayer", status)

	r := newRelay(t)
	m := newTrustMap(t, r)
	trust := start(t, r)
	trust.waitReady(t)
	trust.decide(t, func(authorizationv1.SubjectAccessReviewSpec) http.HandlerFunc { return reviewStatus(`"allowed":true`) })
	trust.createWidget(t)
	trustLeaver := trust.open(t, issue(t, readCA(t, "client-ca"), "leaver"), path, header, "", status)
	trustStayer := trust.open(t, frontProxy(t), path, header, "stayer", status)

	revoked.Store(true)
	data := m.data()
	data["requestheader-client-ca-file"] = string(certs.Bundle{newCA(t, "front-proxy-ca").Certificate}.PEM())
	data["client-ca-file"] = string(certs.Bundle{newCA(t, "client-ca").Certificate}.PEM())
	m.set(data)
	began, longest := time.Now(), time.After(endOfTrust)
	t.Parallel()
	<-longest
	for _, tc := range []struct {
		name   string
		ended  <-chan time.Time
		within time.Duration // 0: it continues
	}{
		{"without the permission", permissionLeaver, endOfPermission}, {"with the permission", permissionStayer, 0},
		{"without the trust in the user's certificate", trustLeaver, endOfTrust},
		{"without the trust in the front proxy", trustStayer, 0},
	} {
		select {
		case at := <-tc.ended:
			took := at.Sub(began)
			t.Logf("%s: ended after %s", tc.name, took.Round(time.Second))
			if took > tc.within {
				t.Errorf("%s: ended after %s, want within %s (0s: not at all)", tc.name, took, tc.within)
			}
		default:
			if tc.within != 0 {
				t.Errorf("%s: still open after %s, want it to end within %s", tc.name, endOfTrust, tc.within)
			}
		}
	}
}

// createWidget creates the widget that has the consoles. The server stores it in its own etcd.
func (s *server) createWidget(t *testing.T) {
	t.Helper()
	const widget = `{"apiVersion":"workshop.example.com/v1","kind":"Widget","metadata":{"name":"lasting"},"spec":{"model":"pendulum"}}`
	s.try(frontProxy(t), http.MethodPost, strings.TrimSuffix(consolesOf("lasting"), "/lasting/console"),
		http.Header{"X-Remote-User": {"maker"}}, widget).want(t, "create the widget", http.StatusCreated)
}

// open sends a request, and returns a channel that receives the time at which the server ends its
// response.
func (s *server) open(t *testing.T, cert *tls.Certificate, path string, header http.Header, user string,
	status int) <-chan time.Time {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+s.address+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(req.Header, header)
	if user != "" {
		req.Header.Set("X-Remote-User", user)
	}
	transport := s.keep(t, cert).Transport.(*http.Transport)
	// Only HTTP/1.1 can be upgraded.
	transport.ForceAttemptHTTP2 = status != http.StatusSwitchingProtocols
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	if resp.StatusCode != status {
		t.Fatalf("GET %s as %q: %s, want %d", path, user, resp.Status, status)
	}
	ended := make(chan time.Time, 1)
	go func() {
		_, _ = io.Copy(io.Discard, resp.Body)
		ended <- time.Now()
	}()
	return ended
}
