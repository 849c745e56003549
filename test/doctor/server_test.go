// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// authority is a CA for serving certificates with any fault.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// newAuthority returns a CA for serving certificates with a change.
func newAuthority(t *testing.T, change func(*x509.Certificate)) *authority {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "serving-ca " + rand.Text()},
		NotBefore: time.Now().Add(-week), NotAfter: time.Now().Add(52 * week), BasicConstraintsValid: true, IsCA: true,
		KeyUsage: x509.KeyUsageCertSign,
	}
	if change != nil {
		change(template)
	}
	a := &authority{key: newKey(t)}
	a.certificate = sign(t, template, template, a.key, a.key)
	return a
}

const week = 7 * 24 * time.Hour

func (a *authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.certificate.Raw})
}

// issue returns a certificate for the name with a change.
func (a *authority) issue(t *testing.T, name string, change func(*x509.Certificate)) tls.Certificate {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-week), NotAfter: time.Now().Add(4 * week),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if change != nil {
		change(template)
	}
	key := newKey(t)
	return tls.Certificate{Certificate: [][]byte{sign(t, template, a.certificate, key, a.key).Raw}, PrivateKey: key}
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func sign(t *testing.T, template, parent *x509.Certificate, key, signer *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

// serve starts a server with the certificate on a loopback port and returns the port.
func serve(t *testing.T, certificate tls.Certificate, handler http.Handler) int32 {
	t.Helper()
	return serveTLS(t, &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}, handler)
}

func serveTLS(t *testing.T, config *tls.Config, handler http.Handler) int32 {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.TLS = config
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // of rejected certificates
	server.StartTLS()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return portOf(t, server.Listener)
}

// portOf returns the port of a listener.
func portOf(t *testing.T, listener net.Listener) int32 {
	t.Helper()
	_, text, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	return int32(port)
}

// listen listens on a loopback port and handles each connection.
func listen(t *testing.T, handle func(net.Conn)) int32 {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			handle(conn)
		}
	}()
	return portOf(t, listener)
}

// silent returns a port that loses the packets of new connections: the queue of its listener is
// full.
func silent(t *testing.T) int32 {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	loopback := &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}
	if err := errors.Join(unix.Bind(fd, loopback), unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	address, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	port := address.(*unix.SockaddrInet4).Port
	for {
		conn, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", port), time.Second)
		if err != nil {
			return int32(port) //nolint:gosec // a port
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
}

// api returns the handler of a minimal API with one resource. It has only what kube-apiserver
// reads of a server: discovery and OpenAPI v3.
func api(group, resource, schemas string, verbs ...string) *http.ServeMux {
	resources := "[]"
	if resource != "" {
		resources = fmt.Sprintf(`[{"name": %q, "singularName": "x", "namespaced": true, "kind": "X", "verbs": ["%s"]}]`,
			resource, strings.Join(append(verbs, "get"), `", "`))
	}
	mux := http.NewServeMux()
	respond := func(path, body string) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, body)
		})
	}
	var paths []string
	for _, version := range []string{"v1", "v1beta1"} {
		gv := group + "/" + version
		respond("/apis/"+gv, fmt.Sprintf(
			`{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": %q, "resources": %s}`, gv, resources))
		respond("/openapi/v3/apis/"+gv, fmt.Sprintf(`{"openapi": "3.0.0", "info": {"title": "X", "version": "v1"},
			"paths": {}, "components": {"schemas": %s}}`, schemas))
		paths = append(paths, fmt.Sprintf(`"apis/%[1]s": {"serverRelativeURL": "/openapi/v3/apis/%[1]s?hash=1"}`, gv))
	}
	if schemas != "" {
		respond("/openapi/v3", `{"paths": {`+strings.Join(paths, ", ")+"}}")
	}
	return mux
}
