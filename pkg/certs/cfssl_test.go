// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	stdlog "log"
	"math/big"
	"net/url"
	"testing"
	"time"

	"github.com/cloudflare/cfssl/signer"
	"github.com/cloudflare/cfssl/signer/local"
)

func leafSpec(names ...string) spec {
	return spec{
		commonName: "leaf", dnsNames: names, usage: x509.ExtKeyUsageServerAuth,
		notBefore: epoch.Add(-time.Hour), notAfter: epoch.Add(time.Hour),
	}
}

// rawSigner is cfssl with our policy, without what sign does around it.
func rawSigner(t *testing.T, ca *CA, s spec) *local.Signer {
	t.Helper()
	policy, err := policyFor(s)
	if err != nil {
		t.Fatal(err)
	}
	cfssl, err := local.NewSigner(ca.Key, ca.Certificate, signer.DefaultSigAlgo(ca.Key), policy)
	if err != nil {
		t.Fatal(err)
	}
	return cfssl
}

// cfssl takes a name with a port for a URI and says nothing; the certificate then has no name that any client asks for.
func TestGuessedNameIsCaught(t *testing.T) {
	ca := newServingCA(t)
	key, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"a.b.svc:443":   "URIs: expected [], found [a.b.svc:443]",
		"*":             "URIs: expected [], found [*]",
		"me@a.b.svc":    "email addresses: expected [], found [me@a.b.svc]",
		"10.0.0.1":      "IP addresses: expected [], found [10.0.0.1]",
		"/etc/hosts":    "URIs: expected [], found [/etc/hosts]",
		"spiffe://a/b":  "URIs: expected [], found [spiffe://a/b]",
		"<a@a.b.svc>":   "email addresses: expected [], found [a@a.b.svc]",
		"localhost:080": "URIs: expected [], found [localhost:080]",
	} {
		_, err := sign(leafSpec(name), key, &ca.KeyPair)
		wantError(t, err, want)
	}
}

// cfssl signs with its default profile when it does not know a name. Ours cannot sign anything.
func TestUnknownProfileSignsNothing(t *testing.T) {
	ca, s := newServingCA(t), leafSpec("a.b.svc")
	key, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	request, err := requestFor(s, key)
	if err != nil {
		t.Fatal(err)
	}
	for _, profile := range []string{"", "default", "Certs", "server"} {
		request.Profile = profile
		if out, err := rawSigner(t, ca, s).Sign(*request); err == nil {
			t.Errorf("profile %q signed %s", profile, out)
		}
	}
}

func TestUsageWithoutProfileIsRefused(t *testing.T) {
	s := leafSpec("a.b.svc")
	s.usage = x509.ExtKeyUsageCodeSigning
	_, err := policyFor(s)
	wantError(t, err, "do not say")
}

// A CSR must not bring anything but its key: in cfssl v1.6 its extensions can override usages, names and CA.
func TestCSRBringsOnlyItsKey(t *testing.T) {
	ca, s := newServingCA(t), leafSpec("a.b.svc")
	key, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	isCA, err := asn1.Marshal(struct{ IsCA bool }{true})
	if err != nil {
		t.Fatal(err)
	}
	clientAuth, err := asn1.Marshal([]asn1.ObjectIdentifier{{1, 3, 6, 1, 5, 5, 7, 3, 2}})
	if err != nil {
		t.Fatal(err)
	}
	csrDER, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject:        pkix.Name{CommonName: "evil", Organization: []string{"system:masters"}},
		DNSNames:       []string{"kubernetes.default.svc"},
		EmailAddresses: []string{"a@b.example"},
		URIs:           []*url.URL{{Scheme: "spiffe", Host: "evil"}},
		ExtraExtensions: []pkix.Extension{
			{Id: asn1.ObjectIdentifier{2, 5, 29, 19}, Critical: true, Value: isCA},
			{Id: asn1.ObjectIdentifier{2, 5, 29, 37}, Value: clientAuth},
			{Id: asn1.ObjectIdentifier{1, 2, 3, 4}, Value: []byte{5, 0}},
		},
	}, key)
	if err != nil {
		t.Fatal(err)
	}
	request, err := requestFor(s, key)
	if err != nil {
		t.Fatal(err)
	}
	request.Request = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: csrDER}))
	out, err := rawSigner(t, ca, s).Sign(*request)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := parseCertificate(out)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.checkIssued(cert, ca.Certificate, key.Public()); err != nil {
		t.Errorf("the request got through: %v", err)
	}
}

// cfssl logs each signature to standard error, which is for certgen's errors.
func TestSignerIsSilent(t *testing.T) {
	var out bytes.Buffer
	defer stdlog.SetOutput(stdlog.Writer())
	stdlog.SetOutput(&out)
	issueServing(t, newCA(t, CAOptions{Usage: x509.ExtKeyUsageServerAuth, PermittedDNS: []string{"a.b.svc"}}), "a.b.svc")
	if _, err := sign(leafSpec("a:b"), newServingCA(t).Key, &newServingCA(t).KeyPair); err == nil {
		t.Error("want an error")
	}
	if out.Len() > 0 {
		t.Errorf("signing logged:\n%s", out.String())
	}
}

// RFC 5280 section 4.1.2.2: positive and at most 20 octets; CA/Browser Forum: at least 64 random bits.
func TestSerialsAreRandomAndShort(t *testing.T) {
	ca, seen := newServingCA(t), map[string]bool{}
	for range 20 {
		serial := issueServing(t, ca, "a.b.svc").Certificate.SerialNumber
		if reason := checkSerial(serial); reason != "" || seen[serial.String()] || serial.BitLen() < 64 {
			t.Errorf("serial %x: %s, seen before %v", serial, reason, seen[serial.String()])
		}
		seen[serial.String()] = true
	}
	for _, bad := range []*big.Int{big.NewInt(0), big.NewInt(-1), new(big.Int).Lsh(big.NewInt(1), 159)} {
		if checkSerial(bad) == "" {
			t.Errorf("serial %x was accepted", bad)
		}
	}
}
