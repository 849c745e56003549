// SPDX-License-Identifier: Apache-2.0

// Package serving accepts connections and serves HTTP/1.1 and HTTP/2 on them, with limits for
// clients other than kube-apiserver.
package serving

import (
	"cmp"
	"context"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"k8s.io/apiserver/pkg/endpoints/metrics"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/klog/v2"
)

// Limits for clients before authentication. The library's server accepts 1 MiB for the head of a
// request and 32 s to send it, and has no setting for either. 30 heads of short fields, which take
// 18 times their size in memory, exceed the 512 MiB that the manifests allow.
const (
	// maxHead is the maximum size of a request head in bytes, to which net/http adds 4096 in
	// HTTP/1.1. It has room for 600 groups of 50 bytes, which is also the limit for the user of an
	// exec-like streaming session.
	maxHead = 32 << 10
	// maxHeadFrontProxy is the maximum size for kube-apiserver's requests over HTTP/2, which
	// contain the user's groups.
	maxHeadFrontProxy = 128 << 10
	// maxStreams is how many concurrent requests an HTTP/2 connection may have. For
	// kube-apiserver, --http2-max-streams-per-connection specifies the number.
	maxStreams = 25
	// headTimeout is how long a client may take to send a head, also over a slow link.
	headTimeout = 10 * time.Second
	// maxChain is the maximum number of certificates that a client may send. Each is tried as the
	// issuer of each other: 15 signatures with 4 certificates, and 64 with 5.
	maxChain = 4
	// maxModulus and maxExponent limit the bits of an RSA key and its public exponent. To verify
	// signatures with 8192 bits and an exponent of 2^31-1 takes more than 100 times as long.
	maxModulus, maxExponent = 4096, 1<<16 + 1
)

// server is an HTTP server with other settings than the library's server. The library runs it as
// the listener of its own server, which starts to serve with Accept, gets no connection, and
// drains with Close.
type server struct {
	net.Listener
	http    *http.Server
	timeout time.Duration // of Close
}

// Accept serves until Close.
func (s *server) Accept() (net.Conn, error) {
	return nil, s.http.Serve(tls.NewListener(s.Listener, s.http.TLSConfig))
}

// Close closes the listener and waits for the requests in flight.
func (s *server) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	return s.http.Shutdown(ctx)
}

// ReplaceServer makes the library serve with the server of this package. isFrontProxy verifies the
// certificates of a client.
func ReplaceServer(ctx context.Context, generic *genericapiserver.GenericAPIServer,
	isFrontProxy func([]*x509.Certificate) bool) error {
	info := generic.SecureServingInfo
	config, err := newTLSConfig(ctx, info)
	if err != nil {
		return err
	}
	config.GetConfigForClient = identifyConnections(config.GetConfigForClient, isFrontProxy)
	timeout := generic.ShutdownTimeout
	if generic.ShutdownSendRetryAfter {
		timeout = 2 * time.Second // after all responses, as in GenericAPIServer.RunWithContext
	}
	s := &server{Listener: limitConnections(info.Listener), timeout: timeout, http: &http.Server{
		Handler:           generic.Handler,
		MaxHeaderBytes:    maxHead,
		ReadHeaderTimeout: headTimeout,
		IdleTimeout:       90 * time.Second, // as in the library
		TLSConfig:         config,
		ConnContext:       withConnection,
		ConnState:         connectionState,
		ErrorLog:          log.New(errorLog{}, "", 0),
	}}
	if !info.DisableHTTP2 {
		// The library sets ShutdownTimeout to the timeout of requests.
		if err := configureHTTP2(s.http, info.HTTP2MaxStreamsPerConnection, generic.ShutdownTimeout); err != nil {
			return fmt.Errorf("configure HTTP/2: %w", err)
		}
	}
	generic.SecureServingInfo = &genericapiserver.SecureServingInfo{Listener: s, DisableHTTP2: true}
	return nil
}

// configureHTTP2 uses the library's settings for the front proxy, on whose connections the bodies
// of one user must not delay those of another. Other clients have lower limits. A connection on
// which no byte can be sent for the timeout is closed, because the deadlines of its requests wait
// for data that cannot be sent.
func configureHTTP2(s *http.Server, streams int, timeout time.Duration) error {
	const stream = 256 << 10
	count := int32(cmp.Or(streams, 100)) //nolint:gosec // a flag: as many as somebody wants
	configure := func(streams, window int32, maxHead int) (func(*tls.Conn, http.Handler), error) {
		err := http2.ConfigureServer(s, &http2.Server{
			IdleTimeout:                  s.IdleTimeout,
			WriteByteTimeout:             timeout,
			MaxConcurrentStreams:         uint32(streams), //nolint:gosec // as above
			MaxReadFrameSize:             stream,
			MaxUploadBufferPerStream:     stream,
			MaxUploadBufferPerConnection: window,
		})
		serve := s.TLSNextProto[http2.NextProtoTLS]
		// It takes the maximum size of a head from the server that it is given.
		settings := &http.Server{MaxHeaderBytes: maxHead, ReadHeaderTimeout: headTimeout, ErrorLog: s.ErrorLog}
		return func(conn *tls.Conn, handler http.Handler) { serve(settings, conn, handler) }, err
	}
	frontProxy, err := configure(count, stream*count, maxHeadFrontProxy)
	if err != nil {
		return err
	}
	other, err := configure(min(maxStreams, count), stream, maxHead)
	if err != nil {
		return err
	}
	s.TLSNextProto[http2.NextProtoTLS] = func(_ *http.Server, conn *tls.Conn, handler http.Handler) {
		c := underTLS(conn)
		if c == nil {
			return // not one of our connections
		}
		c.establish()
		if c.frontProxy.Load() {
			frontProxy(conn, handler)
		} else {
			other(conn, handler)
		}
	}
	return nil
}

// newTLSConfig returns a configuration that follows the files of the certificates and the client
// CA, as the library does.
func newTLSConfig(ctx context.Context, info *genericapiserver.SecureServingInfo) (*tls.Config, error) {
	config := &tls.Config{
		MinVersion: max(info.MinTLSVersion, tls.VersionTLS12), CipherSuites: info.CipherSuites,
		CurvePreferences: info.CurvePreferences,
		NextProtos:       []string{http2.NextProtoTLS, "http/1.1"},
		// Authentication verifies the certificates, since some requests need none.
		ClientAuth: tls.RequestClientCert,
	}
	if info.DisableHTTP2 {
		config.NextProtos = config.NextProtos[1:]
	}
	dynamic := dynamiccertificates.NewDynamicServingCertificateController(config, info.ClientCA, info.Cert,
		info.SNICerts, nil)
	notifiers := []dynamiccertificates.Notifier{info.ClientCA, info.Cert}
	for _, cert := range info.SNICerts {
		notifiers = append(notifiers, cert)
	}
	for _, notifier := range notifiers {
		notifier.AddListener(dynamic)
		if controller, ok := notifier.(dynamiccertificates.ControllerRunner); ok {
			if err := controller.RunOnce(ctx); err != nil {
				return nil, fmt.Errorf("read certificates: %w", err)
			}
			go controller.Run(ctx, 1)
		}
	}
	if err := dynamic.RunOnce(); err != nil {
		return nil, fmt.Errorf("read certificates: %w", err)
	}
	go dynamic.Run(1, ctx.Done())
	config.GetConfigForClient = dynamic.GetConfigForClient
	return config, nil
}

// identifyConnections makes the handshake fail for a client whose certificates are expensive to
// verify, or that has too many connections and is not the front proxy.
func identifyConnections(next func(*tls.ClientHelloInfo) (*tls.Config, error),
	isFrontProxy func([]*x509.Certificate) bool) func(*tls.ClientHelloInfo) (*tls.Config, error) {
	return func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		config, err := next(hello)
		if err != nil {
			return nil, err
		}
		config = config.Clone()
		config.VerifyConnection = func(state tls.ConnectionState) error {
			if err := checkChain(state.PeerCertificates); err != nil {
				return err
			}
			conn, ok := hello.Conn.(*connection)
			if !ok {
				return fmt.Errorf("connection of the type %T, expected one of ours", hello.Conn)
			}
			return conn.handshakeDone(len(state.PeerCertificates) > 0 && isFrontProxy(state.PeerCertificates))
		}
		return config, nil
	}
}

// checkChain returns an error if it would be expensive to verify the certificates.
func checkChain(chain []*x509.Certificate) error {
	if len(chain) > maxChain {
		return fmt.Errorf("the client sent %d certificates, expected at most %d", len(chain), maxChain)
	}
	for _, cert := range chain {
		if key, ok := cert.PublicKey.(*rsa.PublicKey); ok && (key.N.BitLen() > maxModulus || key.E > maxExponent) {
			return fmt.Errorf("the client sent an RSA key of %d bits with the exponent %d, expected at most %d bits and %d",
				key.N.BitLen(), key.E, maxModulus, maxExponent)
		}
	}
	return nil
}

// errorLog logs the errors of net/http. As in the library, a failed TLS handshake is not logged as
// an error.
type errorLog struct{}

func (errorLog) Write(p []byte) (int, error) {
	text := strings.TrimSpace(string(p))
	if strings.HasPrefix(text, "http: TLS handshake error") {
		metrics.TLSHandshakeErrors.Inc()
		klog.V(5).InfoS(text)
	} else {
		klog.ErrorS(errors.New(text), "HTTP server")
	}
	return len(p), nil
}
