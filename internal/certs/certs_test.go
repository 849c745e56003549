// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// epoch is the default current time in tests.
var epoch = time.Date(2026, 11, 21, 6, 0, 0, 0, time.UTC)

func at(t time.Time) func() time.Time { return func() time.Time { return t } }

func newCA(t *testing.T, opts CAOptions) *CA {
	t.Helper()
	if opts.Name == "" {
		opts.Name = "test-ca"
	}
	if opts.Now == nil {
		opts.Now = at(epoch)
	}
	ca, err := NewCA(opts)
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func newServingCA(t *testing.T) *CA {
	t.Helper()
	return newCA(t, CAOptions{Usage: x509.ExtKeyUsageServerAuth})
}

func newClientCA(t *testing.T) *CA {
	t.Helper()
	return newCA(t, CAOptions{Usage: x509.ExtKeyUsageClientAuth})
}

func issueServing(t *testing.T, ca *CA, names ...string) *KeyPair {
	t.Helper()
	pair, err := ca.IssueServing(ServingOptions{DNSNames: names})
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// forge signs template with the issuer's key, without this package's validation, as a thief of
// the key could.
func forge(t *testing.T, issuer KeyPair, template *x509.Certificate) KeyPair {
	t.Helper()
	key, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	return forgeWithKey(t, issuer, template, key)
}

// forgeWithKey creates a self-signed certificate if issuer is empty.
func forgeWithKey(t *testing.T, issuer KeyPair, template *x509.Certificate, key crypto.Signer) KeyPair {
	t.Helper()
	if template.NotAfter.IsZero() {
		template.NotBefore, template.NotAfter = epoch.Add(-time.Hour), epoch.Add(time.Hour)
	}
	if issuer.Certificate == nil {
		issuer = KeyPair{Certificate: template, Key: key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer.Certificate, key.Public(), issuer.Key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := newKeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	return *pair
}

// verifyServing verifies cert with an APIService's caBundle, as kube-aggregator's TLS client
// does.
func verifyServing(cert *x509.Certificate, caBundle []byte, serverName string) error {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(caBundle) {
		return errors.New("no certificate in caBundle")
	}
	_, err := cert.Verify(x509.VerifyOptions{Roots: roots, DNSName: serverName, CurrentTime: epoch})
	return err
}

// verifyClient verifies a client certificate as the request-header authenticator does.
func verifyClient(cert *x509.Certificate, caBundle []byte) error {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(caBundle) {
		return errors.New("no certificate in bundle")
	}
	_, err := cert.Verify(x509.VerifyOptions{
		Roots: roots, CurrentTime: epoch, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	return err
}

// notFound is the operating system's error text for a file that does not exist.
var notFound = syscall.Errno(2).Error()

// wantError reports a test error unless err contains want.
func wantError(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(filepath.ToSlash(err.Error()), filepath.ToSlash(want)) {
		t.Errorf("got error %v, want one with %q", err, want)
	}
}

func mustECDSA(t *testing.T, pair *KeyPair) *ecdsa.PrivateKey {
	t.Helper()
	key, ok := pair.Key.(*ecdsa.PrivateKey)
	if !ok {
		t.Fatalf("got key %T, want ECDSA", pair.Key)
	}
	return key
}
