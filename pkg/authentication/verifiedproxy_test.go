// SPDX-License-Identifier: Apache-2.0

package authentication

import (
	"bytes"
	"context"
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

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"

	"example.com/extension-apiserver/pkg/certs"
)

// changingTrust is a bundle that a test changes. It counts how often somebody verifies with it: the library asks for the options then.
type changingTrust struct {
	dynamiccertificates.CAContentProvider
	bundle   atomic.Pointer[[]byte]
	verified atomic.Int32
}

func (c *changingTrust) set(bundle []byte) { c.bundle.Store(&bundle) }

func (c *changingTrust) CurrentCABundleContent() []byte { return *c.bundle.Load() }

func (c *changingTrust) VerifyOptions() (x509.VerifyOptions, bool) {
	c.verified.Add(1)
	roots := x509.NewCertPool()
	return x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, roots.AppendCertsFromPEM(c.CurrentCABundleContent())
}

// names are those that a test allows.
type names struct{ atomic.Pointer[[]string] }

func (n *names) set(names ...string) { n.Store(&names) }

// Value implements headerrequest.StringSliceProvider.
func (n *names) Value() []string { return *n.Load() }

// proxyRig is the authenticator with all that it depends on in the hands of a test.
type proxyRig struct {
	*verifiedProxy
	trust *changingTrust
	names *names
	clock atomic.Int64 // is added to the time
}

func newProxyRig(t testing.TB, ca *certs.CA) *proxyRig {
	t.Helper()
	r := &proxyRig{trust: &changingTrust{}, names: &names{}}
	r.trust.set(certs.Bundle{ca.Certificate}.PEM())
	r.names.set("front-proxy-client")
	proxy, err := newVerifiedProxy(&authenticatorfactory.RequestHeaderConfig{
		UsernameHeaders: headerrequest.StaticStringSlice{"X-Remote-User"}, UIDHeaders: headerrequest.StaticStringSlice{},
		GroupHeaders: headerrequest.StaticStringSlice{}, ExtraHeaderPrefixes: headerrequest.StaticStringSlice{},
		AllowedClientNames: r.names, CAContentProvider: r.trust,
	})
	if err != nil {
		t.Fatal(err)
	}
	proxy.now = func() time.Time { return time.Now().Add(time.Duration(r.clock.Load())) }
	r.verifiedProxy = proxy
	return r
}

// ask sends a request for a user over a connection with these certificates. It returns the user's name, empty if refused, and whether
// the certificates were verified for it.
func (r *proxyRig) ask(user string, chain ...*x509.Certificate) (name string, verified bool) {
	req := httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/", nil)
	req.TLS = &tls.ConnectionState{PeerCertificates: chain}
	req.Header.Set("X-Remote-User", user)
	before := r.trust.verified.Load()
	resp, ok, err := r.AuthenticateRequest(req)
	if ok && err == nil {
		name = resp.User.GetName()
	}
	return name, r.trust.verified.Load() > before
}

func (r *proxyRig) want(t *testing.T, when, user string, verified bool, chain ...*x509.Certificate) {
	t.Helper()
	asked := user
	if asked == "" {
		asked = "mallory"
	}
	if got, gotVerified := r.ask(asked, chain...); got != user || gotVerified != verified {
		t.Errorf("%s: got user %q, verified %t; want %q, %t", when, got, gotVerified, user, verified)
	}
}

// TestRememberedProxy: what was verified is remembered for the very same certificates and trust, and nothing else is.
func TestRememberedProxy(t *testing.T) {
	ca, next := newCA(t, "front-proxy-ca", x509.ExtKeyUsageClientAuth), newCA(t, "front-proxy-ca", x509.ExtKeyUsageClientAuth)
	r := newProxyRig(t, ca)
	cert := issueClient(t, ca, "front-proxy-client").Certificate
	r.want(t, "first", "ann", true, cert)
	r.want(t, "again", "bea", false, cert)
	r.want(t, "another certificate of the same name", "ann", true, issueClient(t, ca, "front-proxy-client").Certificate)
	r.want(t, "another CA", "", true, issueClient(t, next, "front-proxy-client").Certificate)
	r.want(t, "a refused one is not remembered", "", true, issueClient(t, ca, "another").Certificate)
	r.want(t, "more certificates", "ann", true, cert, next.Certificate)

	r.trust.set(bytes.Clone(r.trust.CurrentCABundleContent()))
	r.want(t, "the same trust, read again", "ann", false, cert)
	old := r.trust.CurrentCABundleContent()
	r.trust.set(certs.Bundle{ca.Certificate, next.Certificate}.PEM())
	r.want(t, "more trust", "ann", true, cert)
	r.want(t, "more trust, again", "ann", false, cert)
	r.trust.set(certs.Bundle{next.Certificate}.PEM())
	r.want(t, "other trust", "", true, cert)
	r.trust.set(nil)
	r.want(t, "no trust", "", true, cert)
	r.trust.set(old)
	r.want(t, "the first trust", "ann", true, cert)

	r.names.set("another-name")
	r.want(t, "the name is not allowed", "", true, cert)
	r.names.set("another-name", "front-proxy-client")
	r.want(t, "the name is allowed again", "ann", false, cert)

	r.clock.Store(int64(time.Until(cert.NotAfter) + time.Second))
	r.want(t, "after it expired", "ann", true, cert) // the library's clock says that it has not
	r.clock.Store(-int64(time.Hour))
	r.want(t, "a clock that was set back", "ann", true, cert)
	r.clock.Store(0)
	r.want(t, "the clock is right again", "ann", false, cert)
}

// TestRememberedChain: an intermediate counts like the rest. It must be there, and ends the memory with its own end.
func TestRememberedChain(t *testing.T) {
	root, rootKey := selfMade(t, "root", nil, nil, time.Hour)
	intermediate, intermediateKey := selfMade(t, "intermediate", root, rootKey, time.Minute)
	leaf, _ := selfMade(t, "front-proxy-client", intermediate, intermediateKey, time.Hour)
	r := newProxyRig(t, &certs.CA{KeyPair: certs.KeyPair{Certificate: root}})
	r.want(t, "with its intermediate", "ann", true, leaf, intermediate)
	r.want(t, "again", "ann", false, leaf, intermediate)
	r.want(t, "without", "", true, leaf)
	r.clock.Store(int64(2 * time.Minute))
	r.want(t, "after the intermediate expired", "ann", true, leaf, intermediate)
}

// TestRememberedProxies: there is room for many, and not for ever more.
func TestRememberedProxies(t *testing.T) {
	ca := newCA(t, "front-proxy-ca", x509.ExtKeyUsageClientAuth)
	r := newProxyRig(t, ca)
	for range 2 * rememberedChains {
		r.want(t, "a new one", "ann", true, issueClient(t, ca, "front-proxy-client").Certificate)
	}
	if got := r.chains.Len(); got != rememberedChains {
		t.Errorf("remembered: %d, want %d", got, rememberedChains)
	}
}

// selfMade is a certificate as certs would not make it: with an intermediate. No parent makes a root.
func selfMade(t testing.TB, name string, parent *x509.Certificate, parentKey *ecdsa.PrivateKey, lifetime time.Duration) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	signer, err := certs.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	key := signer.(*ecdsa.PrivateKey)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, BasicConstraintsValid: true, IsCA: name != "front-proxy-client",
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(lifetime), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
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

// BenchmarkFrontProxy compares a request of a front proxy that was verified before with one that is verified, as the library does
// each time.
func BenchmarkFrontProxy(b *testing.B) {
	ca := newCA(b, "front-proxy-ca", x509.ExtKeyUsageClientAuth)
	r := newProxyRig(b, ca)
	req := httptest.NewRequestWithContext(b.Context(), http.MethodGet, "/", nil)
	req.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{issueClient(b, ca, "front-proxy-client").Certificate}}
	req.Header.Set("X-Remote-User", "ann")
	for name, a := range map[string]authenticator.Request{"verified": r.verifying, "remembered": r.verifiedProxy} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				// The library takes the header away.
				req.Header.Set("X-Remote-User", "ann")
				if _, ok, err := a.AuthenticateRequest(req); !ok || err != nil {
					b.Fatal(ok, err)
				}
			}
		})
	}
}
