// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"

	"example.com/extension-apiserver/internal/certs"
)

// selfSigned is a certificate of any use.
func selfSigned(t *testing.T, name string) tls.Certificate {
	t.Helper()
	key, err := certs.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// serveFor makes the library serve the handler with our server, and returns clients of it.
func serveFor(t *testing.T, handler http.Handler, timeout time.Duration, isFrontProxy func([]*x509.Certificate) bool) (client func(protocol string, certificate *tls.Certificate) *http.Client, url string) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serving := selfSigned(t, "extension-apiserver.test")
	roots := x509.NewCertPool()
	roots.AddCert(serving.Leaf)
	certPEM := certs.Bundle{serving.Leaf}.PEM()
	keyDER, err := x509.MarshalPKCS8PrivateKey(serving.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	content, err := dynamiccertificates.NewStaticCertKeyContent("serving", certPEM, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}))
	if err != nil {
		t.Fatal(err)
	}
	clientCA, err := dynamiccertificates.NewStaticCAContent("client-ca", certPEM)
	if err != nil {
		t.Fatal(err)
	}
	generic := &genericapiserver.GenericAPIServer{
		Handler:           &genericapiserver.APIServerHandler{FullHandlerChain: handler},
		SecureServingInfo: &genericapiserver.SecureServingInfo{Listener: listener, Cert: content, ClientCA: clientCA, HTTP2MaxStreamsPerConnection: 100},
		ShutdownTimeout:   timeout,
	}
	ctx, stop := context.WithCancel(t.Context())
	if err := replaceServer(ctx, generic, isFrontProxy); err != nil {
		t.Fatal(err)
	}
	stopped, listenerStopped, err := generic.SecureServingInfo.Serve(generic.Handler, time.Minute, ctx.Done())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		<-listenerStopped
		<-stopped
	})
	return func(protocol string, certificate *tls.Certificate) *http.Client {
		config := &tls.Config{RootCAs: roots, ServerName: "extension-apiserver.test", MinVersion: tls.VersionTLS12}
		if certificate != nil {
			config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return certificate, nil }
		}
		protocols := &http.Protocols{}
		protocols.SetHTTP1(protocol == "HTTP/1.1")
		protocols.SetHTTP2(protocol == "HTTP/2.0")
		transport := &http.Transport{TLSClientConfig: config, Protocols: protocols}
		t.Cleanup(transport.CloseIdleConnections)
		return &http.Client{Transport: transport, Timeout: time.Minute}
	}, "https://" + listener.Addr().String()
}

// TestReplacedServer: our server speaks both protocols behind the library's, with heads of their
// sizes, knows the front proxy by its certificate, and refuses a long chain.
func TestReplacedServer(t *testing.T) {
	proxy, user := selfSigned(t, "front-proxy"), selfSigned(t, "ann")
	isFrontProxy := func(chain []*x509.Certificate) bool { return chain[0].Equal(proxy.Leaf) }
	client, url := serveFor(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		answer := map[int]string{1: "HTTP/1.1", 2: "HTTP/2.0"}[req.ProtoMajor]
		if fromFrontProxy(req.Context()) {
			answer += " front proxy"
		}
		_, _ = io.WriteString(w, answer)
	}), time.Minute, isFrontProxy)
	get := func(t *testing.T, client *http.Client, head int) string {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Head", strings.Repeat("x", head))
		resp, err := client.Do(req)
		if err != nil {
			return err.Error()
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != http.StatusOK {
			return resp.Status
		}
		return string(body)
	}
	long := user
	long.Certificate = slices.Repeat(user.Certificate, maxChain+1)
	longest := user
	longest.Certificate = slices.Repeat(user.Certificate, maxChain)
	for _, tc := range []struct {
		name, protocol string
		certificate    *tls.Certificate
		head           int
		want           string
	}{
		{"anonymous", "HTTP/1.1", nil, 0, "HTTP/1.1"},
		{"anonymous", "HTTP/2.0", nil, 0, "HTTP/2.0"},
		{"a user", "HTTP/2.0", &user, 0, "HTTP/2.0"},
		{"the front proxy", "HTTP/1.1", &proxy, 0, "HTTP/1.1 front proxy"},
		{"the front proxy", "HTTP/2.0", &proxy, 0, "HTTP/2.0 front proxy"},
		{"head that fits", "HTTP/1.1", nil, maxHead, "HTTP/1.1"},
		{"head that does not", "HTTP/1.1", nil, maxHead + 8<<10, "431 Request Header Fields Too Large"},
		{"head that fits", "HTTP/2.0", &user, maxHead - 1<<10, "HTTP/2.0"},
		{"head that does not", "HTTP/2.0", &user, maxHead, "431 Request Header Fields Too Large"},
		{"the front proxy's head that fits", "HTTP/2.0", &proxy, maxHeadFrontProxy - 1<<10, "HTTP/2.0 front proxy"},
		{"the front proxy's head that does not", "HTTP/2.0", &proxy, maxHeadFrontProxy, "431 Request Header Fields Too Large"},
		{"longest chain", "HTTP/2.0", &longest, 0, "HTTP/2.0"},
		{"longer chain", "HTTP/1.1", &long, 0, "bad certificate"},
	} {
		t.Run(tc.protocol+" "+tc.name, func(t *testing.T) {
			got := get(t, client(tc.protocol, tc.certificate), tc.head)
			// A client of HTTP/2 that read the server's settings in time does not send such a head.
			if strings.HasPrefix(tc.want, "431") && strings.Contains(got, "larger than peer's advertised limit") {
				return
			}
			if got != tc.want && !strings.HasSuffix(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

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

// TestS37StalledConnection: the handlers of a connection in HTTP/2 on which nothing can be sent any more
// do not wait for it.
func TestS37StalledConnection(t *testing.T) {
	const streams, timeout, patience = 20, 500 * time.Millisecond, 30 * time.Second
	stalled, ended := make(chan struct{}), make(chan struct{}, streams)
	piece := make([]byte, 1<<20)
	client, url := serveFor(t, withDeadlines(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.(http.Flusher).Flush()
		<-stalled
		for {
			if _, err := w.Write(piece); err != nil {
				ended <- struct{}{}
				return
			}
		}
	}), timeout), timeout, func([]*x509.Certificate) bool { return false })
	user := selfSigned(t, "ann")
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
