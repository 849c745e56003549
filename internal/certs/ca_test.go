// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var widgets = Service{Name: "widgets", Namespace: "demo"}

// profile contains the properties that two certificates for the same spec share.
type profile struct {
	KeyUsage    x509.KeyUsage
	ExtKeyUsage []x509.ExtKeyUsage
	CA          bool
	PathLen     int
	Groups      []string
	DNS, IPs    []string
	Constraints string
	Life        time.Duration
}

func profileOf(c *x509.Certificate) profile {
	return profile{
		c.KeyUsage, c.ExtKeyUsage, c.IsCA, c.MaxPathLen, c.Subject.Organization,
		c.DNSNames, toStrings(c.IPAddresses), constraintsOf(c), c.NotAfter.Sub(c.NotBefore),
	}
}

func TestProfiles(t *testing.T) {
	const caUsage, leafUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign, x509.KeyUsageDigitalSignature
	server, client := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	names := widgets.DNSNames()

	servingCA := newCA(t, CAOptions{Usage: x509.ExtKeyUsageServerAuth, PermittedDNS: names})
	addressCA := newCA(t, CAOptions{Usage: x509.ExtKeyUsageServerAuth, PermittedDNS: names,
		PermittedIPs: []string{"10.0.0.1", "fd00::1"}})
	plainCA, clientCA := newServingCA(t), newClientCA(t)
	serving := issueServing(t, servingCA, names...)
	etcd, err := plainCA.IssueServing(ServingOptions{DNSNames: []string{"localhost"}, IPs: []string{"127.0.0.1", "::1"},
		Lifetime: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	user, err := clientCA.IssueClient(ClientOptions{User: "jane", Groups: []string{"dev", "ops"}})
	if err != nil {
		t.Fatal(err)
	}

	for name, tc := range map[string]struct {
		got  *KeyPair
		want profile
	}{
		"serving CA": {&servingCA.KeyPair, profile{
			KeyUsage: caUsage, ExtKeyUsage: server, CA: true, Life: CALifetime + time.Hour,
			Constraints: "permitted DNS widgets, widgets.demo, widgets.demo.svc, widgets.demo.svc.cluster.local; " +
				"excluded IP 0.0.0.0/0, ::/0",
		}},
		"serving CA with addresses": {&addressCA.KeyPair, profile{
			KeyUsage: caUsage, ExtKeyUsage: server, CA: true, Life: CALifetime + time.Hour,
			Constraints: "permitted DNS widgets, widgets.demo, widgets.demo.svc, widgets.demo.svc.cluster.local; " +
				"permitted IP 10.0.0.1/32, fd00::1/128",
		}},
		"CA without limits": {&plainCA.KeyPair, profile{KeyUsage: caUsage, ExtKeyUsage: server, CA: true,
			Constraints: "none", Life: CALifetime + time.Hour}},
		"client CA": {&clientCA.KeyPair, profile{KeyUsage: caUsage, ExtKeyUsage: client, CA: true,
			Constraints: "none", Life: CALifetime + time.Hour}},
		"serving leaf": {serving, profile{KeyUsage: leafUsage, ExtKeyUsage: server, PathLen: -1, DNS: names,
			Constraints: "none", Life: LeafLifetime + time.Hour}},
		"leaf with addresses": {etcd, profile{
			KeyUsage: leafUsage, ExtKeyUsage: server, PathLen: -1, DNS: []string{"localhost"},
			IPs:         []string{"127.0.0.1", "::1"},
			Constraints: "none", Life: 2 * time.Hour,
		}},
		"client leaf": {user, profile{KeyUsage: leafUsage, ExtKeyUsage: client, PathLen: -1,
			Groups: []string{"dev", "ops"}, Constraints: "none", Life: LeafLifetime + time.Hour}},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.want.IPs == nil {
				tc.want.IPs = []string{}
			}
			if diff := cmp.Diff(tc.want, profileOf(tc.got.Certificate)); diff != "" {
				t.Errorf("profile (-want +got):\n%s", diff)
			}
			if got := keyType(mustECDSA(t, tc.got).Public()); got != "ECDSA P-256" {
				t.Errorf("got key %s, want ECDSA P-256", got)
			}
			if want := epoch.Add(-time.Hour); !tc.got.Certificate.NotBefore.Equal(want) {
				t.Errorf("valid from %s, want %s: an hour for slow clocks", tc.got.Certificate.NotBefore, want)
			}
		})
	}
}

// TestCriticalExtensions: basic constraints and name constraints are critical (RFC 5280 sections
// 4.2.1.9 and 4.2.1.10). Otherwise a verifier that does not support them would ignore them.
func TestCriticalExtensions(t *testing.T) {
	ca := newCA(t, CAOptions{Usage: x509.ExtKeyUsageServerAuth, PermittedDNS: widgets.DNSNames()})
	got := map[string]bool{}
	for _, e := range ca.Certificate.Extensions {
		got[e.Id.String()] = e.Critical
	}
	want := map[string]bool{"2.5.29.14": false, "2.5.29.15": true, "2.5.29.19": true, "2.5.29.30": true,
		"2.5.29.37": false}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("extensions and whether they are critical (-want +got):\n%s", diff)
	}
}

func TestCASubjectsAreUnique(t *testing.T) {
	long := strings.Repeat("x", 63)
	a, b := newCA(t, CAOptions{Name: long, Usage: x509.ExtKeyUsageClientAuth}),
		newCA(t, CAOptions{Name: long, Usage: x509.ExtKeyUsageClientAuth})
	if bytes.Equal(a.Certificate.RawSubject, b.Certificate.RawSubject) {
		t.Errorf("two CAs created in one second share the subject %s", a.Certificate.Subject)
	}
	cn := a.Certificate.Subject.CommonName
	if !strings.Contains(cn, fmt.Sprintf("@%d-", epoch.Unix())) || len(cn) > maxCommonName {
		t.Errorf("got common name %q, want the time in it and at most %d characters", cn, maxCommonName)
	}
}

func TestCAOptionsReportAllErrors(t *testing.T) {
	_, err := NewCA(CAOptions{PermittedDNS: []string{"a:1", "ok.example.com"}, PermittedIPs: []string{"1.2.3"},
		Lifetime: -1})
	var got []string
	for _, e := range Flatten(err) {
		var invalid *InvalidError
		if !errors.As(e, &invalid) {
			t.Fatalf("got %T, want *InvalidError", e)
		}
		got = append(got, invalid.Field)
	}
	if diff := cmp.Diff([]string{"name", "usage", "permitted-dns", "permitted-ip", "lifetime"}, got); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
	}
	_, err = NewCA(CAOptions{Name: "x", Usage: x509.ExtKeyUsageClientAuth, PermittedDNS: []string{"a.example.com"}})
	wantError(t, err, "expected none for a client CA")
	_, err = NewCA(CAOptions{Name: "x", Usage: x509.ExtKeyUsageServerAuth, PermittedIPs: []string{"10.0.0.1"}})
	wantError(t, err, "expected permitted DNS names as well")
}

func TestParseCA(t *testing.T) {
	ca, other := newServingCA(t), newServingCA(t)
	leaf := issueServing(t, ca, "a.b.svc")
	for name, tc := range map[string]struct {
		cert, key []byte
		now       time.Time
		want      string
	}{
		"good":            {ca.CertPEM, ca.KeyPEM, epoch, ""},
		"key of another":  {ca.CertPEM, other.KeyPEM, epoch, "the key does not match the certificate"},
		"leaf":            {leaf.CertPEM, leaf.KeyPEM, epoch, "expected a CA certificate"},
		"expired":         {ca.CertPEM, ca.KeyPEM, epoch.Add(CALifetime + time.Second), "expired at"},
		"not yet valid":   {ca.CertPEM, ca.KeyPEM, epoch.Add(-2 * time.Hour), "clock"},
		"two in the file": {append(ca.CertPEM, other.CertPEM...), ca.KeyPEM, epoch, "expected one, found 2"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseCA(tc.cert, tc.key, at(tc.now))
			if tc.want != "" {
				wantError(t, err, tc.want)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if pair := issueServing(t, got, "a.b.svc"); verifyServing(pair.Certificate, ca.CertPEM, "a.b.svc") != nil {
				t.Error("a CA that was read again issues leaves that do not verify")
			}
		})
	}
}

// TestParseExternalCA: ParseCA accepts RSA keys, which are common in CAs that other tools
// create. It rejects a weak one, with which cfssl would use SHA-1.
func TestParseExternalCA(t *testing.T) {
	for bits, want := range map[int]string{2048: "",
		1024: "expected ECDSA P-256 or stronger, or RSA of at least 2048 bits, found RSA 1024"} {
		key, err := rsa.GenerateKey(rand.Reader, bits)
		if err != nil {
			t.Fatal(err)
		}
		foreign := forgeWithKey(t, KeyPair{}, &x509.Certificate{
			Subject: pkix.Name{CommonName: "elsewhere"}, BasicConstraintsValid: true, IsCA: true,
			KeyUsage: x509.KeyUsageCertSign,
		}, key)
		pkcs1 := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
		ca, err := ParseCA(foreign.CertPEM, pkcs1, at(epoch))
		if want != "" {
			wantError(t, err, want)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		leaf := issueServing(t, ca, "a.b.svc").Certificate
		if leaf.SignatureAlgorithm != x509.SHA256WithRSA {
			t.Errorf("got signature %s, want SHA256-RSA", leaf.SignatureAlgorithm)
		}
	}
}
