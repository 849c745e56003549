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
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"testing"
	"time"
)

// authority is a CA for serving certificates with any fault.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, expires time.Time) *authority {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "serving-ca " + rand.Text()},
		NotBefore: expires.Add(-24 * time.Hour), NotAfter: expires, BasicConstraintsValid: true, IsCA: true,
		KeyUsage: x509.KeyUsageCertSign,
	}
	a := &authority{key: newKey(t)}
	a.certificate = sign(t, template, template, a.key, a.key)
	return a
}

func (a *authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.certificate.Raw})
}

// issue returns a certificate for the name with a change.
func (a *authority) issue(t *testing.T, name string, change func(*x509.Certificate)) tls.Certificate {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(time.Hour),
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
	server := httptest.NewUnstartedServer(handler)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // of rejected certificates
	server.StartTLS()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	_, text, err := net.SplitHostPort(u.Host)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	return int32(port)
}

// api returns the handler of a minimal API with one resource. It has only what kube-apiserver
// reads of a server: discovery and OpenAPI v3.
func api(group, resource, schemas string) *http.ServeMux {
	gv := group + "/v1"
	mux := http.NewServeMux()
	respond := func(path, body string) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, body)
		})
	}
	resources := ""
	if resource != "" {
		resources = fmt.Sprintf(`{"name": %q, "singularName": "x", "namespaced": true, "kind": "X", "verbs": ["get"]}`,
			resource)
	}
	respond("/apis/"+gv, fmt.Sprintf(
		`{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": %q, "resources": [%s]}`, gv, resources))
	if schemas != "" {
		respond("/openapi/v3", fmt.Sprintf(
			`{"paths": {"apis/%[1]s": {"serverRelativeURL": "/openapi/v3/apis/%[1]s?hash=1"}}}`, gv))
		respond("/openapi/v3/apis/"+gv, fmt.Sprintf(`{"openapi": "3.0.0", "info": {"title": "X", "version": "v1"},
			"paths": {}, "components": {"schemas": %s}}`, schemas))
	}
	return mux
}
