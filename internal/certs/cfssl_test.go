// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	stdlog "log"
	"math/big"
	"sync"
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

// plainRequest returns a request without names and usages.
func plainRequest(t *testing.T) *x509.CertificateRequest {
	t.Helper()
	key, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	request, err := newRequest(spec{isCA: true}, key)
	if err != nil {
		t.Fatal(err)
	}
	return request
}

// rawSigner returns cfssl's signer with our policy, but without the other steps of sign.
func rawSigner(t *testing.T, ca *CA, s spec) *local.Signer {
	t.Helper()
	cfssl, err := local.NewSigner(ca.Key, ca.Certificate, signer.DefaultSigAlgo(ca.Key), policyFor(s))
	if err != nil {
		t.Fatal(err)
	}
	return cfssl
}

// anyProfileIsOurs: for an unknown profile name, cfssl signs with its default profile. That must
// be the only profile, ours.
func anyProfileIsOurs(t *testing.T) {
	ca, s := newServingCA(t), leafSpec("a.b.svc")
	request := plainRequest(t)
	order, err := signRequestFor(s, request)
	if err != nil {
		t.Fatal(err)
	}
	for _, profile := range []string{"", "default", "server"} {
		order.Profile = profile
		certPEM, err := rawSigner(t, ca, s).Sign(*order)
		if err != nil {
			t.Fatal(err)
		}
		cert, err := parseCertificate(certPEM)
		if err == nil {
			err = s.checkIssued(cert, ca.Certificate, request.PublicKey)
		}
		if err != nil {
			t.Errorf("profile %q: %v", profile, err)
		}
	}
}

func unknownUsageIsRefused(t *testing.T) {
	s := leafSpec("a.b.svc")
	s.usage = x509.ExtKeyUsageCodeSigning
	_, err := sign(s, plainRequest(t), newServingCA(t).KeyPair)
	wantError(t, err, "extended key usages: expected")
}

// policyIsValid: cfssl rejects a policy whose default profile is missing or has no expiry, and
// fails if a lint level is set.
func policyIsValid(t *testing.T) {
	for _, s := range []spec{leafSpec("a.b.svc"), {isCA: true, usage: x509.ExtKeyUsageClientAuth},
		{isCA: true, mutual: true, usage: x509.ExtKeyUsageClientAuth}} {
		if policy := policyFor(s); !policy.Valid() || policy.Default.LintErrLevel != 0 {
			t.Errorf("got the policy %+v, want one that cfssl takes, without linting", policy)
		}
	}
}

// timesAreExact: validity is exact to the second, despite the rounding and defaults of cfssl's
// profiles.
func timesAreExact(t *testing.T) {
	now := time.Date(2026, 11, 21, 6, 30, 31, 999, time.UTC)
	ca := newCA(t, CAOptions{Usage: x509.ExtKeyUsageServerAuth, Now: at(now)})
	leaf, err := ca.IssueServing(ServingOptions{DNSNames: []string{"a.b.svc"}, Lifetime: 90*time.Minute + time.Second})
	if err != nil {
		t.Fatal(err)
	}
	from, until := now.Truncate(time.Second).Add(-time.Hour), now.Truncate(time.Second).Add(90*time.Minute+time.Second)
	if c := leaf.Certificate; !c.NotBefore.Equal(from) || !c.NotAfter.Equal(until) {
		t.Errorf("valid %s to %s, want %s to %s", c.NotBefore, c.NotAfter, from, until)
	}
}

func lifeOfCAIsTheOptions(t *testing.T) {
	ca := newCA(t, CAOptions{Usage: x509.ExtKeyUsageServerAuth, Lifetime: 100 * day})
	if want := epoch.Add(100 * day); !ca.Certificate.NotAfter.Equal(want) {
		t.Errorf("the CA ends %s, want %s", ca.Certificate.NotAfter, want)
	}
}

// renewedCAIsANewOne checks that certgen replaces a CA instead of renewing it: the new CA has
// another subject, serial number, key and key identifier, and all extensions.
func renewedCAIsANewOne(t *testing.T) {
	dir := t.TempDir()
	mustInit(t, initOptions(dir, epoch))
	old, err := parseCertificate(readPEM(t, dir, ServingCADir, CertFile))
	if err != nil {
		t.Fatal(err)
	}
	opts := initOptions(dir, epoch.Add(CALifetime+time.Second))
	opts.AllowNewCA = true
	mustInit(t, opts)
	fresh, err := parseCertificate(readPEM(t, dir, ServingCADir, CertFile))
	if err != nil {
		t.Fatal(err)
	}
	if old.Subject.String() == fresh.Subject.String() || old.SerialNumber.Cmp(fresh.SerialNumber) == 0 ||
		SamePublicKey(old.PublicKey, fresh.PublicKey) || bytes.Equal(old.SubjectKeyId, fresh.SubjectKeyId) {
		t.Errorf("the new CA %s shares subject, serial, key or key identifier with the old one", fresh.Subject)
	}
	if constraintsOf(fresh) != constraintsOf(old) || len(fresh.Extensions) != len(old.Extensions) {
		t.Errorf("the new CA has %d extensions and may sign %s, want %d and %s", len(fresh.Extensions),
			constraintsOf(fresh), len(old.Extensions), constraintsOf(old))
	}
}

// guessedNameIsCaught: cfssl silently treats a name with a port as a URI. The resulting
// certificate would have no name that any client uses.
func guessedNameIsCaught(t *testing.T) {
	ca := newServingCA(t)
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
		_, err := sign(leafSpec(name), plainRequest(t), ca.KeyPair)
		wantError(t, err, want)
	}
	// These remain DNS names, so checkIssued finds no difference. IssueServing must reject them
	// earlier.
	for _, name := range []string{"", "10.0.0.0/24", "[::1]", "10.0.0.1:443"} {
		if _, err := ca.IssueServing(ServingOptions{DNSNames: []string{name}}); err == nil {
			t.Errorf("the name %q was signed", name)
		}
	}
}

// signerLogsNothing: cfssl must not log signatures to standard error, which is reserved for
// certgen's errors.
func signerLogsNothing(t *testing.T) {
	var out bytes.Buffer
	defer stdlog.SetOutput(stdlog.Writer())
	stdlog.SetOutput(&out)
	issueServing(t, newCA(t, CAOptions{Usage: x509.ExtKeyUsageServerAuth, PermittedDNS: []string{"a.b.svc"}}),
		"a.b.svc")
	if _, err := sign(leafSpec("a:b"), plainRequest(t), newServingCA(t).KeyPair); err == nil {
		t.Error("want an error")
	}
	if out.Len() > 0 {
		t.Errorf("signing logged:\n%s", out.String())
	}
}

// rootsAtOnce: roots that are created concurrently do not affect each other.
func rootsAtOnce(t *testing.T) {
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			ca, err := NewCA(CAOptions{Name: "ca", Usage: x509.ExtKeyUsageServerAuth, Now: at(epoch)})
			if err == nil {
				err = ca.Certificate.CheckSignatureFrom(ca.Certificate)
			}
			if err == nil {
				_, err = ca.IssueServing(ServingOptions{DNSNames: []string{"a.b.svc"}})
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func keysAreEncodedAlike(t *testing.T) {
	small, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	large, err := newKey(ECDSAP384)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []crypto.Signer{small, large} {
		data, err := EncodePrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		if block, rest := pem.Decode(data); block == nil || block.Type != "PRIVATE KEY" || len(rest) > 0 {
			t.Errorf("%s: got %+v, want one PEM block PRIVATE KEY", keyType(key.Public()), block)
		}
	}
	wantError(t, KeyType("ed25519").validate(), "refuse Ed25519")
}

// TestSerialsAreRandomAndShort: serials are positive and have at most 20 octets (RFC 5280
// section 4.1.2.2), and at least 64 random bits (CA/Browser Forum).
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
