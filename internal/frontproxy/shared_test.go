// SPDX-License-Identifier: Apache-2.0

package frontproxy

import (
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"slices"
	"testing"
	"time"

	"example.com/extension-apiserver/internal/certs"
)

// authority is a CA certificate with its key.
type authority struct {
	*x509.Certificate
	key crypto.Signer
}

func newKey(t *testing.T) crypto.Signer {
	t.Helper()
	key, err := certs.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// sign returns a certificate for the key. Without an issuer, it is self-signed.
func sign(t *testing.T, name string, key crypto.Signer, issuer *authority,
	change func(*x509.Certificate)) *x509.Certificate {
	t.Helper()
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(240 * time.Hour),
	}
	change(template)
	parent, signer := template, key
	if issuer != nil {
		parent, signer = issuer.Certificate, issuer.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func newAuthority(t *testing.T, name string, key crypto.Signer, issuer *authority,
	changes ...func(*x509.Certificate)) *authority {
	t.Helper()
	return &authority{sign(t, name, key, issuer, func(c *x509.Certificate) {
		c.IsCA, c.KeyUsage = true, x509.KeyUsageCertSign
		for _, change := range changes {
			change(c)
		}
	}), key}
}

// leaf returns a client certificate with the name of the front proxy and the validity of its
// issuer.
func leaf(t *testing.T, issuer *authority) *x509.Certificate {
	t.Helper()
	return sign(t, certs.FrontProxyUser, newKey(t), issuer, func(c *x509.Certificate) {
		c.KeyUsage, c.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
		c.NotBefore, c.NotAfter = issuer.NotBefore, issuer.NotAfter
	})
}

func bundleOf(cas ...*authority) certs.Bundle {
	var out certs.Bundle
	for _, ca := range cas {
		out = append(out, ca.Certificate)
	}
	return out
}

// accepts reports whether an API server with these CAs accepts the certificates that a client
// sends, at the given time.
func accepts(cas, sent certs.Bundle, at time.Time) bool {
	_, err := sent[0].Verify(x509.VerifyOptions{
		Roots: cas.Pool(), Intermediates: sent[1:].Pool(), CurrentTime: at,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	return err == nil
}

// sharing is a pair of bundles. user and proxy are the certificates that a user and the front
// proxy send: a leaf and intermediates.
type sharing struct {
	name             string
	proxies, clients certs.Bundle
	user, proxy      certs.Bundle
	shared           bool
	later            time.Duration // when the certificates are verified; 0 means now
}

// TestS11SharedCA checks that a CA counts as shared if a user's certificate passes for the front
// proxy's, or the front proxy's for a user's. Each case is proven with certificates.
func TestS11SharedCA(t *testing.T) {
	for _, tc := range slices.Concat(sameKeys(t), signedByEachOther(t), separate(t)) {
		t.Run(tc.name, func(t *testing.T) {
			at := time.Now().Add(tc.later)
			if !accepts(tc.clients, tc.user, at) || !accepts(tc.proxies, tc.proxy, at) {
				t.Fatal("the case is wrong: the user or the front proxy is not accepted by its own CAs")
			}
			if got := accepts(tc.proxies, tc.user, at) || accepts(tc.clients, tc.proxy, at); got != tc.shared {
				t.Errorf("one's certificate is accepted by the CAs of the other: %t, want %t", got, tc.shared)
			}
			for way, cm := range map[string]Status{
				"as described":        Evaluate(published(tc.proxies, tc.clients)),
				"the other way round": Evaluate(published(tc.clients, tc.proxies)),
			} {
				if got := slices.ContainsFunc(cm.Problems, func(p Problem) bool {
					return p.Weakness == SharedCA
				}); got != tc.shared {
					t.Errorf("%s: shared: %t, want %t: %+v", way, got, tc.shared, cm.Problems)
				}
			}
		})
	}
}

func sameKeys(t *testing.T) []sharing {
	t.Helper()
	a, b := newAuthority(t, "a", newKey(t), nil), newAuthority(t, "b", newKey(t), nil)
	again := newAuthority(t, "a", a.key, nil)
	renamed := newAuthority(t, "renamed", a.key, nil)
	// The key can sign for both names, so it can create this bridge.
	bridge := newAuthority(t, "renamed", a.key, a)
	elsewhere := newAuthority(t, "elsewhere", newKey(t), nil)
	below, belowAgain := newAuthority(t, "a", a.key, elsewhere), newAuthority(t, "a", a.key, elsewhere)
	byA, byB, byRenamed := leaf(t, a), leaf(t, b), leaf(t, renamed)
	return []sharing{
		{name: "the same certificate", proxies: bundleOf(a), clients: bundleOf(a), user: certs.Bundle{byA},
			proxy: certs.Bundle{byA}, shared: true},
		{name: "re-signed", proxies: bundleOf(a), clients: bundleOf(again), user: certs.Bundle{leaf(t, again)},
			proxy: certs.Bundle{byA}, shared: true},
		{name: "re-signed by a root that is in neither", proxies: bundleOf(below), clients: bundleOf(belowAgain),
			user: certs.Bundle{leaf(t, belowAgain)}, proxy: certs.Bundle{leaf(t, below)}, shared: true},
		{name: "the same key under another name", proxies: bundleOf(a), clients: bundleOf(renamed),
			user: certs.Bundle{byRenamed, bridge.Certificate}, proxy: certs.Bundle{byA}, shared: true},
		{name: "one of several", proxies: bundleOf(b, a), clients: bundleOf(
			newAuthority(t, "c", newKey(t), nil), again),
			user: certs.Bundle{leaf(t, again)}, proxy: certs.Bundle{byB}, shared: true},
	}
}

func signedByEachOther(t *testing.T) []sharing {
	t.Helper()
	root := newAuthority(t, "root", newKey(t), nil)
	below := newAuthority(t, "below", newKey(t), root)
	further := newAuthority(t, "further", newKey(t), below)
	byRoot, byBelow := certs.Bundle{leaf(t, root)}, certs.Bundle{leaf(t, below), below.Certificate}
	other := newAuthority(t, "other", newKey(t), nil)
	crossed := newAuthority(t, "other", other.key, root)
	byOther := leaf(t, other)
	tomorrow := newAuthority(t, "tomorrow", newKey(t), root,
		func(c *x509.Certificate) { c.NotBefore = time.Now().Add(24 * time.Hour) })
	expired := newAuthority(t, "root", root.key, nil, func(c *x509.Certificate) {
		c.NotAfter = time.Now().Add(-time.Minute)
	})
	return []sharing{
		{name: "a client CA below the front proxy's", proxies: bundleOf(root), clients: bundleOf(below), user: byBelow,
			proxy: byRoot, shared: true},
		{name: "a front proxy's CA below the users'", proxies: bundleOf(below), clients: bundleOf(root), user: byRoot,
			proxy: byBelow, shared: true},
		{name: "a client CA two below", proxies: bundleOf(root), clients: bundleOf(below, further),
			user: certs.Bundle{leaf(t, further), further.Certificate, below.Certificate}, proxy: byRoot, shared: true},
		{name: "a client CA cross-signed by the front proxy's", proxies: bundleOf(root),
			clients: bundleOf(other, crossed),
			user:    certs.Bundle{byOther, crossed.Certificate}, proxy: byRoot, shared: true},
		{name: "a front proxy's CA cross-signed by the users'", proxies: bundleOf(other, crossed),
			clients: bundleOf(root),
			user:    byRoot, proxy: certs.Bundle{byOther, crossed.Certificate}, shared: true},
		{name: "one of several below", proxies: bundleOf(other, root),
			clients: bundleOf(newAuthority(t, "c", newKey(t), nil), below),
			user:    byBelow, proxy: certs.Bundle{byOther}, shared: true},
		{name: "a client CA below that is valid tomorrow", proxies: bundleOf(root), clients: bundleOf(tomorrow),
			user: certs.Bundle{leaf(t, tomorrow), tomorrow.Certificate}, proxy: byRoot, shared: true,
			later: 48 * time.Hour},
		{name: "a root of which one certificate has expired", proxies: bundleOf(expired, root),
			clients: bundleOf(below), user: byBelow, proxy: byRoot, shared: true},
	}
}

func separate(t *testing.T) []sharing {
	t.Helper()
	a, b := newAuthority(t, "a", newKey(t), nil), newAuthority(t, "b", newKey(t), nil)
	sameName := newAuthority(t, "a", newKey(t), nil)
	root := newAuthority(t, "root", newKey(t), nil)
	left, right := newAuthority(t, "left", newKey(t), root), newAuthority(t, "right", newKey(t), root)
	byA, byB := certs.Bundle{leaf(t, a)}, certs.Bundle{leaf(t, b)}
	return []sharing{
		{name: "separate", proxies: bundleOf(a), clients: bundleOf(b), user: byB, proxy: byA},
		{name: "separate with the same name", proxies: bundleOf(a), clients: bundleOf(sameName),
			user: certs.Bundle{leaf(t, sameName)}, proxy: byA},
		{name: "two below a root that is in neither", proxies: bundleOf(left), clients: bundleOf(right),
			user:  certs.Bundle{leaf(t, right), right.Certificate, left.Certificate, root.Certificate},
			proxy: certs.Bundle{leaf(t, left), left.Certificate, right.Certificate, root.Certificate}},
		{name: "several, all separate", proxies: bundleOf(a, left), clients: bundleOf(b, right), user: byB, proxy: byA},
	}
}
