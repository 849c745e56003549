// SPDX-License-Identifier: Apache-2.0

package direct

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"example.com/extension-apiserver/pkg/envtest"
)

// TestS41LoopbackName checks that the server's loopback certificate gives no access. Any client
// that sends its name as SNI gets that certificate. The token of the loopback client is generated
// at each start, and only the token has its permissions.
func TestS41LoopbackName(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	const name = "apiserver-loopback-client"
	config, err := clientTLS(nil)
	if err != nil {
		t.Fatal(err)
	}
	config.ServerName = name
	dial := func() (*tls.Conn, error) {
		return tls.DialWithDialer(&net.Dialer{Timeout: envtest.WaitTimeout}, "tcp", s.address, config)
	}
	// No CA vouches for it.
	_, err = dial()
	unverified := new(tls.CertificateVerificationError)
	if !errors.As(err, &unverified) || len(unverified.UnverifiedCertificates) == 0 {
		t.Fatalf("handshake for %s: %v, want a certificate that is not trusted", name, err)
	}
	// An attacker ignores that.
	config.RootCAs = x509.NewCertPool()
	for _, cert := range unverified.UnverifiedCertificates {
		config.RootCAs.AddCert(cert)
	}
	for what, lines := range map[string]string{
		"no credentials":      "",
		"forged headers":      "X-Remote-User: system:apiserver\r\nX-Remote-Group: system:masters\r\n",
		"a guessed token":     "Authorization: Bearer 00000000-0000-0000-0000-000000000000\r\n",
		"an empty token":      "Authorization: Bearer \r\n",
		"the name as a token": "Authorization: Bearer " + name + "\r\n",
	} {
		conn, err := dial()
		if err != nil {
			t.Fatal(err)
		}
		//nolint:bodyclose // it ends with the connection
		if got := send(t, conn, "GET "+protected+" HTTP/1.1\r\nHost: "+name+"\r\n"+lines+"\r\n"); got.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s: %s, want 401", what, got.Status)
		}
		_ = conn.Close()
	}
	// Other names do not matter either.
	for _, name := range []string{"", "elsewhere.example.com"} {
		config, err := clientTLS(nil)
		if err != nil {
			t.Fatal(err)
		}
		config.ServerName = name
		if name == "" {
			config.ServerName = "127.0.0.1" // no SNI is sent for an address
		}
		_, err = tls.DialWithDialer(&net.Dialer{Timeout: envtest.WaitTimeout}, "tcp", s.address, config)
		if wrong := new(x509.HostnameError); !errors.As(err, wrong) || len(wrong.Certificate.DNSNames) == 0 {
			t.Errorf("handshake for %q: %v, want the certificate of the Service", name, err)
		}
	}
}

// send writes to a connection, and reads one response with its body.
func send(t *testing.T, conn net.Conn, request string) *http.Response {
	t.Helper()
	if err := conn.SetDeadline(time.Now().Add(envtest.WaitTimeout)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("no response: %v", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body = io.NopCloser(strings.NewReader(string(body)))
	return resp
}

// TestS43Upgrade checks that a rejected upgrade request leaves no tunnel. The connection carries
// requests as before, each with its own credentials. kube-apiserver once treated such connections
// as tunnels (CVE-2018-1002105).
func TestS43Upgrade(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	proxy := frontProxy(t)
	console := "/apis/workshop.example.com/v1/namespaces/default/widgets/none/console"
	for _, upgrade := range []string{"websocket", "SPDY/3.1", "h2c"} {
		for _, tc := range []struct {
			path, user string
			want       int
		}{
			{"/healthz", "ann", 200}, {"/apis", "ann", 200}, {"/apis/workshop.example.com/v1", "ann", 200},
			{"/openapi/v2", "ann", 200},
			{protected, "boss", 200}, {protected, "ann", 403}, {console, "ann", 403}, {"/nowhere", "ann", 403},
			{protected, "", 401}, {console, "", 401},
		} {
			conn := s.dial(t, proxy, "http/1.1")
			lines := "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: " + upgrade +
				"\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n" +
				"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: " +
				"13\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\n"
			if tc.user != "" {
				lines += "X-Remote-User: " + tc.user + "\r\n"
			}
			what := fmt.Sprintf("%s to %s as %q", upgrade, tc.path, tc.user)
			//nolint:bodyclose // it ends with the connection
			if got := send(t, conn,
				"GET "+tc.path+" HTTP/1.1\r\nHost: x\r\n"+lines+"\r\n"); got.StatusCode != tc.want ||
				got.Header.Get("Upgrade") != "" {
				t.Errorf("%s: %s, want %d and no upgrade", what, got.Status, tc.want)
			}
			// What follows is a separate request, or the connection is closed.
			if _, err := io.WriteString(conn, "GET "+protected+" HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
				continue
			}
			//nolint:bodyclose // it ends with the connection
			if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err == nil &&
				resp.StatusCode != http.StatusUnauthorized {
				t.Errorf("%s: the next request on the connection: %s, want 401", what, resp.Status)
			}
			_ = conn.Close()
		}
	}
}

// TestS51ErrorsDiscloseNothing checks that error responses disclose no internal address, token or
// stack trace, and that a client cannot inject lines into the log.
func TestS51ErrorsDiscloseNothing(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	proxy := frontProxy(t)
	inside := []string{s.url, strings.TrimPrefix(s.url, "https://"), "goroutine ", ".go:", "etcd.sock",
		"canary-token", shared.Dir}
	s.script(accessReviews, reply(http.StatusInternalServerError, "secret trace at goroutine 1"))
	s.script(tokenReviews, reply(http.StatusInternalServerError, "secret trace at goroutine 1"))
	for what, got := range map[string]response{
		"review fails":    s.try(proxy, http.MethodGet, protected, http.Header{"X-Remote-User": {"ann"}}, ""),
		"token fails":     s.try(nil, http.MethodGet, protected, bearer("canary-token"), ""),
		"no credentials":  s.try(nil, http.MethodGet, protected, nil, ""),
		"wrong authority": s.try(issue(t, newCA(t, "x"), "x"), http.MethodGet, protected, nil, ""),
	} {
		if got.status < 400 {
			t.Errorf("%s: %s, want an error", what, got)
		}
		for _, secret := range inside {
			if strings.Contains(got.body, secret) || strings.Contains(fmt.Sprint(got.header), secret) {
				t.Errorf("%s: the response discloses %q: %s", what, secret, got)
			}
		}
	}
	// The error of an unreachable kube-apiserver contains an address.
	s.script(accessReviews, reset)
	unreached := s.try(proxy, http.MethodGet, protected, http.Header{"X-Remote-User": {"bea"}}, "")
	if unreached.status != http.StatusInternalServerError ||
		strings.Contains(unreached.body, strings.TrimPrefix(s.url, "https://")) {
		t.Errorf("no response to a review: %s, want 500 without the address", unreached)
	}
	s.try(proxy, http.MethodGet, "/x%0aE0101%2000:00:00%20forged-line%0a", http.Header{"X-Remote-User": {"ann"}}, "")
	s.try(nil, http.MethodGet, "/x%0d%0aforged-line", nil, "")
	s.try(signed(t, nil, func(c *x509.Certificate) { c.Subject.CommonName = "x\nforged-line" }), http.MethodGet,
		protected, nil, "")
	for line := range strings.Lines(s.end()) {
		if strings.HasPrefix(line, "forged-line") || strings.HasPrefix(line, "E0101 00:00:00 forged-line") {
			t.Errorf("a caller wrote the line %q into the log", line)
		}
		if strings.Contains(line, "canary-token") {
			t.Errorf("a token in the log: %s", line)
		}
	}
}
