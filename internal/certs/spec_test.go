// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"math/big"
	"net"
	"net/url"
	"testing"
	"time"
)

// fullSpec and fullTemplate describe the same certificate, for this package and for crypto/x509.
var fullSpec = spec{
	commonName: "a.b.svc", groups: []string{"g"}, dnsNames: []string{"a.b.svc"}, ips: []string{"10.0.0.1"},
	usage: x509.ExtKeyUsageServerAuth, notBefore: epoch.Add(-time.Hour), notAfter: epoch.Add(time.Hour),
}

func fullTemplate() *x509.Certificate {
	return &x509.Certificate{
		Subject:  pkix.Name{CommonName: "a.b.svc", Organization: []string{"g"}},
		DNSNames: []string{"a.b.svc"}, IPAddresses: []net.IP{net.IPv4(10, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true, SubjectKeyId: []byte{1}, SerialNumber: big.NewInt(7),
		NotBefore: fullSpec.notBefore, NotAfter: fullSpec.notAfter,
	}
}

// TestCheckIssuedFindsEachDifference: checkIssued detects any difference between the signer's
// result and the spec.
func TestCheckIssuedFindsEachDifference(t *testing.T) {
	ca, other := newServingCA(t), newServingCA(t)
	want := fullSpec
	for name, tc := range map[string]struct {
		change func(*x509.Certificate)
		want   string
	}{
		"nothing": {func(*x509.Certificate) {}, ""},
		"common name": {func(c *x509.Certificate) { c.Subject.CommonName = "x" },
			"common name: expected a.b.svc, found x"},
		"group": {func(c *x509.Certificate) { c.Subject.Organization = []string{"system:masters"} },
			"organizations"},
		"more subject": {func(c *x509.Certificate) { c.Subject.Country = []string{"DE"} },
			"number of subject attributes"},
		"DNS name": {func(c *x509.Certificate) { c.DNSNames = append(c.DNSNames, "x.y.svc") }, "DNS names"},
		"address":  {func(c *x509.Certificate) { c.IPAddresses = nil }, "IP addresses"},
		"URI": {func(c *x509.Certificate) { c.URIs = []*url.URL{{Scheme: "a.b.svc", Opaque: "443"}} },
			"URIs"},
		"email":     {func(c *x509.Certificate) { c.EmailAddresses = []string{"a@b.example"} }, "email addresses"},
		"key usage": {func(c *x509.Certificate) { c.KeyUsage |= x509.KeyUsageKeyEncipherment }, "key usages"},
		"both usages": {func(c *x509.Certificate) {
			c.ExtKeyUsage = append(c.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
		}, "extended key usages"},
		"unknown usage": {func(c *x509.Certificate) { c.UnknownExtKeyUsage = []asn1.ObjectIdentifier{{1, 2, 3}} },
			"1.2.3"},
		"no usage":       {func(c *x509.Certificate) { c.ExtKeyUsage = nil }, "extended key usages"},
		"CA":             {func(c *x509.Certificate) { c.IsCA = true }, "CA: expected false, found true"},
		"no constraints": {func(c *x509.Certificate) { c.BasicConstraintsValid = false }, "basic constraints"},
		"name constraints": {func(c *x509.Certificate) {
			c.PermittedDNSDomains, c.PermittedDNSDomainsCritical = []string{"svc"}, true
		}, "name constraints"},
		"unusual extension": {func(c *x509.Certificate) {
			c.ExtraExtensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{1, 2, 3, 4}, Value: []byte{5, 0}}}
		}, "unexpected extensions: expected [], found [1.2.3.4]"},
		"CRL address": {func(c *x509.Certificate) { c.CRLDistributionPoints = []string{"http://x"} },
			"unexpected extensions"},
		"starts early": {func(c *x509.Certificate) { c.NotBefore = c.NotBefore.Add(-time.Second) }, "validity"},
		"ends late":    {func(c *x509.Certificate) { c.NotAfter = c.NotAfter.Add(time.Second) }, "validity"},
		"outlives CA": {func(c *x509.Certificate) { c.NotAfter = ca.Certificate.NotAfter.Add(time.Second) },
			"after its CA"},
		"long serial": {func(c *x509.Certificate) { c.SerialNumber = new(big.Int).Lsh(big.NewInt(1), 159) },
			"serial number"},
		"no identifier": {func(c *x509.Certificate) { c.SubjectKeyId = nil }, "subject key identifier"},
	} {
		t.Run(name, func(t *testing.T) {
			template := fullTemplate()
			tc.change(template)
			pair := forge(t, ca.KeyPair, template)
			err := want.checkIssued(pair.Certificate, ca.Certificate, pair.Key.Public())
			if tc.want == "" {
				if err != nil {
					t.Errorf("a correct certificate: %v", err)
				}
				return
			}
			wantError(t, err, tc.want)
		})
	}

	pair := forge(t, ca.KeyPair, fullTemplate())
	wantError(t, want.checkIssued(pair.Certificate, ca.Certificate, ca.Key.Public()), "not the requested key")
	err := want.checkIssued(pair.Certificate, other.Certificate, pair.Key.Public())
	wantError(t, err, "signature")
	wantError(t, err, "authority key identifier")
}

func TestCheckIssuedFindsACAWithoutLimits(t *testing.T) {
	want := spec{
		commonName: "ca", isCA: true, usage: x509.ExtKeyUsageServerAuth,
		constraints: newConstraints([]string{"a.b.svc"}, nil),
		notBefore:   epoch.Add(-time.Hour), notAfter: epoch.Add(time.Hour),
	}
	ca := forge(t, KeyPair{}, &x509.Certificate{
		Subject: pkix.Name{CommonName: "ca"}, BasicConstraintsValid: true, IsCA: true, NotBefore: want.notBefore,
		NotAfter:    want.notAfter,
		KeyUsage:    x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	err := want.checkIssued(ca.Certificate, ca.Certificate, ca.Key.Public())
	wantError(t, err, "path length: expected 0, found -1")
	wantError(t, err, "name constraints: expected permitted DNS a.b.svc; excluded IP 0.0.0.0/0, ::/0, found none")
}
