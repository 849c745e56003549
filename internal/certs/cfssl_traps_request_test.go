// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"net/url"
	"slices"
	"testing"
)

// greedyRequest returns a request that asks for everything a request can contain.
func greedyRequest(t *testing.T, key crypto.Signer) *x509.CertificateRequest {
	t.Helper()
	marshal := func(v any) []byte {
		der, err := asn1.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return der
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "evil", Organization: []string{"system:masters"},
			Country: []string{"XX"}},
		DNSNames:       []string{"kubernetes.default.svc"},
		EmailAddresses: []string{"a@b.example"},
		URIs:           []*url.URL{{Scheme: "spiffe", Host: "evil"}},
		ExtraExtensions: []pkix.Extension{
			{Id: asn1.ObjectIdentifier{2, 5, 29, 19}, Critical: true, Value: marshal(struct{ IsCA bool }{true})},
			{Id: asn1.ObjectIdentifier{2, 5, 29, 15}, Critical: true,
				Value: marshal(asn1.BitString{Bytes: []byte{0x04}, BitLength: 6})},
			{Id: asn1.ObjectIdentifier{2, 5, 29, 37}, Value: marshal(
				[]asn1.ObjectIdentifier{{1, 3, 6, 1, 5, 5, 7, 3, 2}})},
			{Id: asn1.ObjectIdentifier{1, 2, 3, 4}, Value: []byte{5, 0}},
		},
	}, key)
	if err != nil {
		t.Fatal(err)
	}
	request, err := x509.ParseCertificateRequest(der)
	if err != nil {
		t.Fatal(err)
	}
	return request
}

// requestBringsOnlyItsKey: nothing but the key is taken from a request. In cfssl v1.6, a
// request's extensions can override usages, names and CA.
func requestBringsOnlyItsKey(t *testing.T) {
	servers, clients := newServingCA(t), newClientCA(t)
	key, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	nameless := leafSpec()
	nameless.usage = x509.ExtKeyUsageClientAuth
	for name, tc := range map[string]struct {
		ca   *CA
		want spec
	}{"server": {servers, leafSpec("a.b.svc")}, "client, without any name": {clients, nameless}} {
		order, err := signRequestFor(tc.want, greedyRequest(t, key))
		if err != nil {
			t.Fatal(err)
		}
		out, err := rawSigner(t, tc.ca, tc.want).Sign(*order)
		if err != nil {
			t.Fatal(err)
		}
		cert, err := parseCertificate(out)
		if err != nil {
			t.Fatal(err)
		}
		if err := tc.want.checkIssued(cert, tc.ca.Certificate, key.Public()); err != nil {
			t.Errorf("%s: the request got through: %v", name, err)
		}
	}
}

// policyIsForOneKind: a policy is for one certificate. A leaf's policy cannot issue a CA, and a
// CA's policy has no usages of leaves.
func policyIsForOneKind(t *testing.T) {
	if policy := policyFor(leafSpec("a.b.svc")); policy.Default.CAConstraint.IsCA || len(policy.Profiles) != 0 {
		t.Errorf("the policy of a leaf makes CAs: %+v", policy)
	}
	if usages := policyFor(spec{isCA: true, usage: x509.ExtKeyUsageServerAuth}).Default.Usage; slices.Contains(usages,
		"digital signature") {
		t.Errorf("a CA has the usages %q", usages)
	}
}

// leafNamedLikeItsCAIsCaught: if issuer and subject are equal, Go, and therefore cfssl, omits
// the authority key identifier.
func leafNamedLikeItsCAIsCaught(t *testing.T) {
	ca := newClientCA(t)
	_, err := ca.IssueClient(ClientOptions{User: ca.Certificate.Subject.CommonName})
	wantError(t, err, "authority key identifier: expected")
}

func descriptionIsComplete(t *testing.T) {
	pair := forge(t, newServingCA(t).KeyPair, &x509.Certificate{
		URIs: []*url.URL{{Scheme: "spiffe", Host: "a"}}, EmailAddresses: []string{"a@b.example"},
	})
	if got := Describe(pair.Certificate, epoch); !slices.Equal(got.URIs, []string{"spiffe://a"}) ||
		!slices.Equal(got.EmailAddresses, []string{"a@b.example"}) {
		t.Errorf("got URIs %q and email addresses %q, want what is in the certificate", got.URIs, got.EmailAddresses)
	}
}
