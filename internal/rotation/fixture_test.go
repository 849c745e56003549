// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"testing"

	"example.com/extension-apiserver/internal/certs"
)

// sameKeyCA is another certificate for the key of ca.
func sameKeyCA(t *testing.T, ca *certs.CA) *certs.KeyPair {
	t.Helper()
	return &certs.KeyPair{CertPEM: selfSigned(t, "another name", ca)}
}

// sameSubjectPEM is a CA with the subject of ca and another key.
func sameSubjectPEM(t *testing.T, ca *certs.CA) []byte {
	t.Helper()
	return selfSigned(t, ca.Certificate.Subject.CommonName, newTestCA(t, "x", x509.ExtKeyUsageClientAuth))
}

func selfSigned(t *testing.T, commonName string, key *certs.CA) []byte {
	t.Helper()
	template := *key.Certificate
	template.SerialNumber, template.RawSubject = big.NewInt(7), nil
	template.Subject.CommonName, template.Subject.Names = commonName, nil
	return create(t, &template, &template, key, key)
}

// signedPEM is the CA with a certificate that another signed.
func signedPEM(t *testing.T, ca, by *certs.CA) []byte {
	t.Helper()
	return create(t, ca.Certificate, by.Certificate, ca, by)
}

func create(t *testing.T, template, parent *x509.Certificate, subject, signer *certs.CA) []byte {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, subject.Key.Public(), signer.Key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
