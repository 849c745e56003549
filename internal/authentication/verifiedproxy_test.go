// SPDX-License-Identifier: Apache-2.0

package authentication

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"

	"example.com/extension-apiserver/internal/certs"
)

// changingTrust is a CA bundle that a test changes.
type changingTrust struct {
	dynamiccertificates.CAContentProvider
	bundle atomic.Pointer[[]byte]
}

func (c *changingTrust) set(bundle []byte) { c.bundle.Store(&bundle) }

func (c *changingTrust) CurrentCABundleContent() []byte { return *c.bundle.Load() }

func (c *changingTrust) VerifyOptions() (x509.VerifyOptions, bool) {
	roots := x509.NewCertPool()
	return x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}},
		roots.AppendCertsFromPEM(c.CurrentCABundleContent())
}

// names are the allowed names, which a test changes.
type names struct{ atomic.Pointer[[]string] }

func (n *names) set(names ...string) { n.Store(&names) }

// Value implements headerrequest.StringSliceProvider.
func (n *names) Value() []string { return *n.Load() }

// proxyRig is a verifiedProxy whose dependencies are controlled by a test.
type proxyRig struct {
	*verifiedProxy
	trust    *changingTrust
	names    *names
	clock    atomic.Int64 // offset that is added to the time
	verified atomic.Int32 // number of verifications
}

func newProxyRig(t testing.TB, ca *certs.CA) *proxyRig {
	t.Helper()
	r := &proxyRig{trust: &changingTrust{}, names: &names{}}
	r.trust.set(certs.Bundle{ca.Certificate}.PEM())
	r.names.set("front-proxy-client")
	r.verifiedProxy = newVerifiedProxy(&authenticatorfactory.RequestHeaderConfig{
		UsernameHeaders: headerrequest.StaticStringSlice{"X-Remote-User"},
		UIDHeaders:      headerrequest.StaticStringSlice{},
		GroupHeaders:    headerrequest.StaticStringSlice{}, ExtraHeaderPrefixes: headerrequest.StaticStringSlice{},
		AllowedClientNames: r.names, CAContentProvider: r.trust,
	})
	r.now = func() time.Time { return time.Now().Add(time.Duration(r.clock.Load())) }
	r.verify = func(cert *x509.Certificate, opts x509.VerifyOptions) ([][]*x509.Certificate, error) {
		r.verified.Add(1)
		return cert.Verify(opts)
	}
	return r
}

// want checks whether the front proxy is recognized on a connection with these certificates, and
// whether they were verified again.
func (r *proxyRig) want(t *testing.T, when string, proxy, verified bool, chain ...*x509.Certificate) {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	req.TLS = &tls.ConnectionState{PeerCertificates: chain}
	before := r.verified.Load()
	got, err := r.isFrontProxy(req)
	if gotVerified := r.verified.Load() > before; got != proxy || gotVerified != verified {
		t.Errorf("%s: got the front proxy %t (%v), verified %t; want %t, %t", when, got, err, gotVerified,
			proxy, verified)
	}
}

// TestCachedProxy checks that a verification is cached for exactly the same certificates and
// CAs only.
func TestCachedProxy(t *testing.T) {
	ca, next := newCA(t, "front-proxy-ca", x509.ExtKeyUsageClientAuth),
		newCA(t, "front-proxy-ca", x509.ExtKeyUsageClientAuth)
	r := newProxyRig(t, ca)
	cert := issueClient(t, ca, "front-proxy-client").Certificate
	r.want(t, "first", true, true, cert)
	r.want(t, "again", true, false, cert)
	r.want(t, "another certificate of the same name", true, true, issueClient(t, ca, "front-proxy-client").Certificate)
	foreign := issueClient(t, next, "front-proxy-client").Certificate
	r.want(t, "another CA", false, true, foreign)
	r.want(t, "a rejected certificate is not cached", false, true, foreign)
	r.want(t, "another name", false, true, issueClient(t, ca, "another").Certificate)
	r.want(t, "more certificates", true, true, cert, next.Certificate)

	r.trust.set(bytes.Clone(r.trust.CurrentCABundleContent()))
	r.want(t, "the same CAs, read again", true, false, cert)
	old := r.trust.CurrentCABundleContent()
	r.trust.set(certs.Bundle{ca.Certificate, next.Certificate}.PEM())
	r.want(t, "more CAs", true, true, cert)
	r.want(t, "more CAs, again", true, false, cert)
	r.trust.set(certs.Bundle{next.Certificate}.PEM())
	r.want(t, "another CA trusted", false, true, cert)
	r.trust.set(nil)
	r.want(t, "no CA", false, false, cert)
	r.trust.set(old)
	r.want(t, "the first CA", true, true, cert)

	r.names.set("another-name")
	r.want(t, "the name is not allowed", false, false, cert)
	r.names.set("another-name", "front-proxy-client")
	r.want(t, "the name is allowed again", true, false, cert)

	r.clock.Store(int64(time.Until(cert.NotAfter) + time.Second))
	r.want(t, "after it expired", false, true, cert)
	r.clock.Store(-int64(time.Minute))
	r.want(t, "a clock that was set back", true, true, cert)
	r.clock.Store(0)
	r.want(t, "the clock is right again", true, false, cert)
}

// TestCachedChain checks that an intermediate certificate must be present, and that the cached
// verification expires with it.
func TestCachedChain(t *testing.T) {
	root, rootKey := selfMade(t, "root", nil, nil, time.Hour)
	intermediate, intermediateKey := selfMade(t, "intermediate", root, rootKey, time.Minute)
	leaf, _ := selfMade(t, "front-proxy-client", intermediate, intermediateKey, time.Hour)
	r := newProxyRig(t, &certs.CA{KeyPair: certs.KeyPair{Certificate: root}})
	r.want(t, "with its intermediate", true, true, leaf, intermediate)
	r.want(t, "again", true, false, leaf, intermediate)
	r.want(t, "without", false, true, leaf)
	r.clock.Store(int64(2 * time.Minute))
	r.want(t, "after the intermediate expired", false, true, leaf, intermediate)
}

// TestProxyCacheSize checks that the cache has room for many certificates, but a limited
// number.
func TestProxyCacheSize(t *testing.T) {
	ca := newCA(t, "front-proxy-ca", x509.ExtKeyUsageClientAuth)
	r := newProxyRig(t, ca)
	for range 2 * chainCache {
		r.want(t, "a new one", true, true, issueClient(t, ca, "front-proxy-client").Certificate)
	}
	if got := r.chains.Len(); got != chainCache {
		t.Errorf("cached: %d, want %d", got, chainCache)
	}
}

// selfMade returns a certificate that the package certs would not create, with an intermediate as
// issuer. Without a parent, it is a root.
func selfMade(t testing.TB, name string, parent *x509.Certificate, parentKey *ecdsa.PrivateKey,
	lifetime time.Duration) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	signer, err := certs.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	key := signer.(*ecdsa.PrivateKey)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, BasicConstraintsValid: true,
		IsCA:      name != "front-proxy-client",
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(lifetime),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if parent == nil {
		parent, parentKey = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), parentKey)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

// BenchmarkFrontProxy compares a cached front proxy with one that is verified each time, as the
// library does.
func BenchmarkFrontProxy(b *testing.B) {
	ca := newCA(b, "front-proxy-ca", x509.ExtKeyUsageClientAuth)
	r := newProxyRig(b, ca)
	pool, err := dynamiccertificates.NewStaticCAContent("test", r.trust.CurrentCABundleContent())
	if err != nil {
		b.Fatal(err)
	}
	r.config.CAContentProvider = pool
	req := httptest.NewRequestWithContext(b.Context(), http.MethodGet, "/", nil)
	req.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{issueClient(b, ca,
		"front-proxy-client").Certificate}}
	for name, forget := range map[string]func(){"verified": r.chains.Clear, "cached": func() {}} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				forget()
				if is, err := r.isFrontProxy(req); !is || err != nil {
					b.Fatal(is, err)
				}
			}
		})
	}
}
