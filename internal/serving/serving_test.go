// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/rsa"
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

// SelfSigned returns a self-signed certificate for any use.
func SelfSigned(t *testing.T, name string) tls.Certificate {
	t.Helper()
	key, err := certs.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotAfter: time.Now().Add(time.Hour),
		IsCA:     true, BasicConstraintsValid: true,
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

// ServeFor makes the library serve the handler with the server of this package. It returns a
// function that creates clients, and the URL.
func ServeFor(t *testing.T, handler http.Handler, timeout time.Duration,
	isFrontProxy func([]*x509.Certificate) bool) (client func(protocol string,
	certificate *tls.Certificate) *http.Client, url string) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serving := SelfSigned(t, "extension-apiserver.test")
	roots := x509.NewCertPool()
	roots.AddCert(serving.Leaf)
	certPEM := certs.Bundle{serving.Leaf}.PEM()
	keyDER, err := x509.MarshalPKCS8PrivateKey(serving.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	content, err := dynamiccertificates.NewStaticCertKeyContent("serving", certPEM,
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}))
	if err != nil {
		t.Fatal(err)
	}
	clientCA, err := dynamiccertificates.NewStaticCAContent("client-ca", certPEM)
	if err != nil {
		t.Fatal(err)
	}
	generic := &genericapiserver.GenericAPIServer{
		Handler: &genericapiserver.APIServerHandler{FullHandlerChain: handler},
		SecureServingInfo: &genericapiserver.SecureServingInfo{Listener: listener, Cert: content, ClientCA: clientCA,
			HTTP2MaxStreamsPerConnection: 100},
		ShutdownTimeout: timeout,
	}
	ctx, stop := context.WithCancel(t.Context())
	if err := ReplaceServer(ctx, generic, isFrontProxy); err != nil {
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
			config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate,
				error) {
				return certificate, nil
			}
		}
		protocols := &http.Protocols{}
		protocols.SetHTTP1(protocol == "HTTP/1.1")
		protocols.SetHTTP2(protocol == "HTTP/2.0")
		transport := &http.Transport{TLSClientConfig: config, Protocols: protocols}
		t.Cleanup(transport.CloseIdleConnections)
		return &http.Client{Transport: transport, Timeout: time.Minute}
	}, "https://" + listener.Addr().String()
}

// TestReplacedServer checks that the server speaks both protocols behind the library's server,
// limits the size of heads, recognizes the front proxy by its certificate, and rejects a long
// chain.
func TestReplacedServer(t *testing.T) {
	proxy, user := SelfSigned(t, "front-proxy"), SelfSigned(t, "ann")
	isFrontProxy := func(chain []*x509.Certificate) bool { return chain[0].Equal(proxy.Leaf) }
	client, url := ServeFor(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		text := map[int]string{1: "HTTP/1.1", 2: "HTTP/2.0"}[req.ProtoMajor]
		if FromFrontProxy(req.Context()) {
			text += " front proxy"
		}
		_, _ = io.WriteString(w, text)
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
		{"the front proxy's head that does not", "HTTP/2.0", &proxy, maxHeadFrontProxy,
			"431 Request Header Fields Too Large"},
		{"longest chain", "HTTP/2.0", &longest, 0, "HTTP/2.0"},
		{"longer chain", "HTTP/1.1", &long, 0, "bad certificate"},
	} {
		t.Run(tc.protocol+" "+tc.name, func(t *testing.T) {
			got := get(t, client(tc.protocol, tc.certificate), tc.head)
			// An HTTP/2 client that has read the server's settings in time does not send such a
			// head.
			if strings.HasPrefix(tc.want, "431") && strings.Contains(got, "larger than peer's advertised limit") {
				return
			}
			if got != tc.want && !strings.HasSuffix(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// TestCheckChain checks that the server verifies only certificates that are cheap to verify.
func TestCheckChain(t *testing.T) {
	with := func(bits uint, exponent int) *x509.Certificate {
		return &x509.Certificate{PublicKey: &rsa.PublicKey{N: new(big.Int).Lsh(big.NewInt(1), bits-1), E: exponent}}
	}
	leaf, usual := &x509.Certificate{PublicKey: &ecdsa.PublicKey{}}, with(4096, 65537)
	for name, tc := range map[string]struct {
		chain []*x509.Certificate
		valid bool
	}{
		"none":               {nil, true},
		"RSA":                {[]*x509.Certificate{usual}, true},
		"longest":            {[]*x509.Certificate{leaf, usual, usual, usual}, true},
		"longer":             {[]*x509.Certificate{leaf, usual, usual, usual, usual}, false},
		"large modulus":      {[]*x509.Certificate{leaf, with(4097, 65537)}, false},
		"large exponent":     {[]*x509.Certificate{leaf, with(2048, 1<<31-1)}, false},
		"large leaf modulus": {[]*x509.Certificate{with(8192, 3)}, false},
	} {
		if err := checkChain(tc.chain); (err == nil) != tc.valid {
			t.Errorf("%s: got %v, want an error: %t", name, err, !tc.valid)
		}
	}
}
