// SPDX-License-Identifier: Apache-2.0

package direct

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net/http"
	"strings"
	"testing"
	"time"

	"example.com/extension-apiserver/pkg/envtest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	authorizationv1 "k8s.io/api/authorization/v1"

	"example.com/extension-apiserver/internal/certs"
)

// forged returns headers that claim a user who may read the protected path, and an administrator.
func forged() http.Header {
	return http.Header{
		"X-Remote-User": {"boss"}, "X-Remote-Group": {"bosses", "system:masters"}, "X-Remote-Uid": {"1"},
		"X-Remote-Extra-Scope": {"all"},
	}
}

// signed returns a certificate that is valid for the front proxy except for the change.
func signed(t *testing.T, issuer *certs.KeyPair, change func(*x509.Certificate)) *tls.Certificate {
	t.Helper()
	key, err := certs.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: certs.FrontProxyUser},
		NotBefore:    time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
	}
	change(template)
	parent, signer := template, key
	if issuer != nil {
		parent, signer = issuer.Certificate, issuer.Key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// TestS01S02S04ForgedHeaders checks that the server trusts the headers only with the certificate
// of the front proxy. Otherwise any client that reaches the port could be any user. No
// SubjectAccessReview may contain a name that was only claimed.
func TestS01S02S04ForgedHeaders(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	ca := readCA(t, certs.FrontProxyCADir)
	same := func(*x509.Certificate) {}
	good := frontProxy(t)

	for _, tc := range []struct {
		name string
		cert *tls.Certificate
		log  string // required in the server's log
	}{
		{"S1 no certificate", nil, ""},
		{"S2 front proxy's CA, a name that is not allowed", issue(t, ca, "not-the-front-proxy"),
			"x509: subject with cn=not-the-front-proxy is not in the allowed list"},
		{"S2 no name at all", signed(t, &ca.KeyPair, func(c *x509.Certificate) { c.Subject = pkix.Name{} }),
			"is not in the allowed list"},
		{"S2 the allowed name in other letters", signed(t, &ca.KeyPair,
			func(c *x509.Certificate) { c.Subject.CommonName = "Front-Proxy-Client" }), "cn=Front-Proxy-Client is " +
			"not in the allowed list"},
		{"S2 the allowed name as DNS name only", signed(t, &ca.KeyPair, func(c *x509.Certificate) {
			c.Subject.CommonName, c.DNSNames = "x", []string{certs.FrontProxyUser}
		}), "cn=x is not in the allowed list"},
		{"S4 another CA of the same name", issue(t, newCA(t, "front-proxy-ca"), certs.FrontProxyUser),
			"unknown authority"},
		{"S4 another CA with the same subject", signed(t, impostor(t, ca.Certificate), same), "unknown authority"},
		{"S4 self-signed", signed(t, nil, same), "unknown authority"},
		{"S4 expired", signed(t, &ca.KeyPair, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Hour) }),
			"expired"},
		{"S4 not yet valid", signed(t, &ca.KeyPair, func(c *x509.Certificate) {
			c.NotBefore = time.Now().Add(
				time.Minute * 30)
		}), "not yet valid"},
		{"S4 for servers only", signed(t, &ca.KeyPair, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }), "incompatible key usage"},
		{"S4 signed by the front proxy's own certificate", chained(t, good), "x509: "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s.clearRequests()
			before := len(s.log())
			s.get(t, tc.cert, forged()).want(t, "forged headers", http.StatusUnauthorized)
			for _, spec := range s.access(t) {
				t.Errorf("SubjectAccessReview for %s, want none", spec.User)
			}
			shared.Eventually(t, "the reason in the log", envtest.WaitTimeout, func(context.Context) error {
				if log := s.log()[before:]; !strings.Contains(log, tc.log) {
					return fmt.Errorf("got %q, want %q in it", log, tc.log)
				}
				return nil
			})
		})
	}
	// The test setup works: the same headers with the valid certificate are trusted.
	s.get(t, good, forged()).want(t, "the front proxy", http.StatusOK)
	s.get(t, good, http.Header{"X-Remote-User": {"boss"}}).want(t, "the front proxy, without groups", http.StatusOK)
	if got := s.access(t); len(got) != 1 || got[0].User != "boss" {
		t.Errorf("SubjectAccessReviews of the front proxy's requests: %+v, want one for boss", got)
	}
}

// chained returns a certificate that a leaf signed, in a chain with the leaf.
func chained(t *testing.T, leaf *tls.Certificate) *tls.Certificate {
	t.Helper()
	below := signed(t, &certs.KeyPair{Certificate: leaf.Leaf, Key: leaf.PrivateKey.(crypto.Signer)},
		func(*x509.Certificate) {})
	below.Certificate = append(below.Certificate, leaf.Leaf.Raw)
	return below
}

// impostor returns a CA with the subject and the key identifier of another, but its own key.
func impostor(t *testing.T, of *x509.Certificate) *certs.KeyPair {
	t.Helper()
	pair := signed(t, nil, func(c *x509.Certificate) {
		c.RawSubject, c.SubjectKeyId, c.IsCA, c.KeyUsage = of.RawSubject, of.SubjectKeyId, true, x509.KeyUsageCertSign
	})
	cert, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	return &certs.KeyPair{Certificate: cert, Key: pair.PrivateKey.(crypto.Signer)}
}

// TestS03UsersCertificate checks that a user with a valid client certificate is that user, regardless of
// the headers, and that the users' CA authenticates no front proxy.
func TestS03UsersCertificate(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	users := readCA(t, "client-ca")
	for _, name := range []string{"alice", certs.FrontProxyUser} {
		s.clearRequests()
		s.get(t, issue(t, users, name, "makers"), forged()).want(t, name+" with forged headers", http.StatusForbidden)
		specs := s.access(t)
		if len(specs) != 1 {
			t.Fatalf("%d SubjectAccessReviews, want 1", len(specs))
		}
		delete(specs[0].Extra, "authentication.kubernetes.io/credential-id")
		want := authorizationv1.SubjectAccessReviewSpec{User: name, Groups: []string{"makers", "system:authenticated"},
			ResourceAttributes: listGadgets()}
		if diff := cmp.Diff(want, specs[0], cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("SubjectAccessReview (-want +got):\n%s", diff)
		}
	}
	s.get(t, issue(t, users, "boss"), nil).want(t, "boss himself", http.StatusOK)
	boss := func(from, until time.Duration) *tls.Certificate {
		return signed(t, &users.KeyPair, func(c *x509.Certificate) {
			c.Subject = pkix.Name{CommonName: "boss"}
			c.NotBefore, c.NotAfter = time.Now().Add(from), time.Now().Add(until)
		})
	}
	s.get(t, boss(-time.Hour, time.Hour), nil).want(t, "boss with a valid certificate", http.StatusOK)
	s.get(t, boss(-2*time.Hour, -time.Hour), nil).want(t, "boss with an expired certificate", http.StatusUnauthorized)
	s.get(t, boss(time.Hour, 2*time.Hour), nil).want(t, "boss with a certificate of the future", http.StatusUnauthorized)
}

func listGadgets() *authorizationv1.ResourceAttributes {
	return &authorizationv1.ResourceAttributes{Verb: "list", Group: "workshop.example.com", Version: "v1",
		Resource: "gadgets"}
}

// TestS05NoUser checks that the front proxy's certificate is not itself a user: without the user
// header the request is unauthenticated, and groups alone authenticate no user.
func TestS05NoUser(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	proxy := frontProxy(t)
	for name, header := range map[string]http.Header{
		"no header":               nil,
		"an empty user":           {"X-Remote-User": {""}, "X-Remote-Group": {"system:masters"}},
		"an empty user, then one": {"X-Remote-User": {"", "boss"}, "X-Remote-Group": {"system:masters"}},
		"groups only":             {"X-Remote-Group": {"system:masters", "bosses"}},
		"UID and extra only":      {"X-Remote-Uid": {"1"}, "X-Remote-Extra-Scope": {"all"}},
	} {
		s.get(t, proxy, header).want(t, name, http.StatusUnauthorized)
	}
	for _, spec := range s.access(t) {
		t.Errorf("SubjectAccessReview for %q in %q, want none", spec.User, spec.Groups)
	}
	s.get(t, proxy, http.Header{"X-Remote-User": {"boss"}}).want(t, "with a user", http.StatusOK)
}

// TestS05SharedCA checks that the front proxy's certificate authenticates no user even if the
// front proxy and users share a CA, which is tolerated. If any name is tolerated too, a user's
// certificate authenticates that user, or the user in its header.
func TestS05SharedCA(t *testing.T) {
	t.Parallel()
	boss := http.Header{"X-Remote-User": {"boss"}}
	groups := http.Header{"X-Remote-Group": {"bosses", "system:masters"}}
	empty := http.Header{"X-Remote-User": {""}, "X-Remote-Group": {"bosses", "system:masters"}}
	for _, tc := range []struct {
		tolerated, names          string
		proxyAlone, aliceClaiming string // the resulting user; empty means unauthenticated
		aliceEmpty                string
	}{
		{"SharedCA", `["` + certs.FrontProxyUser + `"]`, "", `alice groups=["makers"]`, `alice groups=["makers"]`},
		{"SharedCA,AnyName", "[]", certs.FrontProxyUser, "boss", ""},
	} {
		t.Run(tc.tolerated, func(t *testing.T) {
			t.Parallel()
			r := newRelay(t)
			m := newTrustMap(t, r)
			data := m.data()
			data["client-ca-file"] = data["requestheader-client-ca-file"]
			data["requestheader-allowed-names"] = tc.names
			m.set(data)
			s := start(t, r, "--front-proxy-tolerate="+tc.tolerated)
			s.waitReady(t)
			proxy, alice := frontProxy(t), issue(t, readCA(t, certs.FrontProxyCADir), "alice", "makers")
			s.wantUser(t, proxy, boss, "boss")
			s.wantUser(t, proxy, nil, tc.proxyAlone)
			s.wantUser(t, proxy, groups, tc.proxyAlone)
			s.wantUser(t, proxy, empty, "")
			s.wantUser(t, alice, nil, `alice groups=["makers"]`)
			s.wantUser(t, alice, groups, `alice groups=["makers"]`)
			s.wantUser(t, alice, boss, tc.aliceClaiming)
			s.wantUser(t, alice, empty, tc.aliceEmpty)
		})
	}
}

// TestS06IdentityArrives checks that the SubjectAccessReview contains the identity from the front
// proxy unchanged.
func TestS06IdentityArrives(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.get(t, frontProxy(t), http.Header{
		"X-Remote-User": {"jane doe/öäü, of=x"}, "X-Remote-Uid": {"8aee-5a4a"},
		"X-Remote-Group":                     {"bosses", "a, b", "bosses"},
		"X-Remote-Extra-Example.com%2fscope": {"a", "B c", "d%2Fe"}, "X-Remote-Extra-Mixed-CASE": {"x"},
		"X-Remote-Extra-%E2%82%ac": {"euro"},
		"X-Remote-Extra-Bad%zz":    {"kept"},
	}).want(t, "the front proxy", http.StatusOK)
	want := []authorizationv1.SubjectAccessReviewSpec{{
		User: "jane doe/öäü, of=x", UID: "8aee-5a4a", Groups: []string{"bosses", "a, b", "bosses",
			"system:authenticated"},
		Extra: map[string]authorizationv1.ExtraValue{
			"example.com/scope": {"a", "B c", "d%2Fe"}, "mixed-case": {"x"}, "€": {"euro"}, "bad%zz": {"kept"},
		},
		ResourceAttributes: listGadgets(),
	}}
	if diff := cmp.Diff(want, s.access(t)); diff != "" {
		t.Errorf("SubjectAccessReviews (-want +got):\n%s", diff)
	}
}
