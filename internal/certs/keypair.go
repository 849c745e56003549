// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
)

const (
	blockCertificate = "CERTIFICATE"
	blockPrivateKey  = "PRIVATE KEY"

	// minRSABits is the minimum of NIST SP 800-131A. Below it, cfssl would sign with SHA-1.
	minRSABits = 2048
)

// KeyPair is a certificate with its private key, both parsed and as PEM.
type KeyPair struct {
	Certificate *x509.Certificate
	Key         crypto.Signer `json:"-"`
	CertPEM     []byte
	KeyPEM      []byte `json:"-"` // PKCS#8
}

// String describes the certificate, so that printing a KeyPair never shows its key.
func (p KeyPair) String() string {
	if p.Certificate == nil {
		return "no certificate"
	}
	return p.Certificate.Subject.String() + " sha256:" + Fingerprint(p.Certificate)
}

// GoString keeps the key out of %#v.
func (p KeyPair) GoString() string { return p.String() }

// Fingerprint returns the SHA-256 of the certificate's DER in lower-case hexadecimal.
func Fingerprint(cert *x509.Certificate) string {
	return fmt.Sprintf("%x", sha256.Sum256(cert.Raw))
}

// EncodePrivateKey returns the key as PKCS#8 PEM, the format that client-go and OpenSSL read for
// every algorithm.
func EncodePrivateKey(key crypto.Signer) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode private key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: blockPrivateKey, Bytes: der}), nil
}

// EncodePublicKey returns the public key as PKIX PEM, as kube-apiserver's
// --service-account-key-file reads it.
func EncodePublicKey(key crypto.Signer) ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, fmt.Errorf("encode public key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), nil
}

// ParsePrivateKey parses the single unencrypted private key in data, as PKCS#8, PKCS#1 or SEC 1.
// It skips an EC PARAMETERS block, which OpenSSL writes before a key. As in ParseBundle, any
// other block, damaged blocks, headers in the key's block and trailing text are errors. Error
// texts do not contain any of the data.
func ParsePrivateKey(data []byte) (crypto.Signer, error) {
	c := ReadPEM(data)
	switch {
	case len(c.Problems) > 0:
		return nil, fmt.Errorf("parse private key: expected a PEM block PRIVATE KEY, found %s", c.Problems[0].Text)
	case len(c.Certificates) > 0:
		return nil, errors.New("parse private key: expected a PEM block PRIVATE KEY alone, found a certificate")
	case c.Key == nil:
		return nil, errors.New("parse private key: expected a PEM block PRIVATE KEY, found none")
	}
	return c.Key, checkStrength(c.Key.Public())
}

func checkStrength(public crypto.PublicKey) error {
	if reason := WeakKey(public); reason != "" {
		return errors.New("check key: " + reason)
	}
	return nil
}

// WeakKey returns the reason why common verifiers reject a key, or "".
func WeakKey(public crypto.PublicKey) string {
	reason := fmt.Sprintf("expected ECDSA P-256 or stronger, or RSA of at least %d bits, found %s", minRSABits,
		keyType(public))
	switch k := public.(type) {
	case *ecdsa.PublicKey:
		if k.Curve.Params().BitSize >= 256 {
			return ""
		}
	case *rsa.PublicKey:
		if k.N.BitLen() >= minRSABits {
			return ""
		}
	case ed25519.PublicKey:
		reason += "; " + ed25519Warning
	}
	return reason
}

// ParseKeyPair parses a certificate and its key. It returns an error unless certPEM contains
// exactly one certificate and the key matches it.
func ParseKeyPair(certPEM, keyPEM []byte) (*KeyPair, error) {
	cert, err := parseCertificate(certPEM)
	if err != nil {
		return nil, err
	}
	key, err := ParsePrivateKey(keyPEM)
	if err != nil {
		return nil, err
	}
	if !SamePublicKey(cert.PublicKey, key.Public()) {
		return nil, errors.New("match key and certificate: the key does not match the certificate")
	}
	return newKeyPair(cert, key)
}

func newKeyPair(cert *x509.Certificate, key crypto.Signer) (*KeyPair, error) {
	keyPEM, err := EncodePrivateKey(key)
	if err != nil {
		return nil, err
	}
	return &KeyPair{Certificate: cert, Key: key, CertPEM: Bundle{cert}.PEM(), KeyPEM: keyPEM}, nil
}

// SamePublicKey reports whether a and b are equal. It supports every key type that crypto/x509
// knows.
func SamePublicKey(a, b crypto.PublicKey) bool {
	equal, ok := a.(interface{ Equal(crypto.PublicKey) bool })
	return ok && equal.Equal(b)
}

// keyType returns the algorithm and size of the key in the usual notation, such as "ECDSA
// P-256".
func keyType(public crypto.PublicKey) string {
	switch k := public.(type) {
	case *ecdsa.PublicKey:
		return "ECDSA " + k.Curve.Params().Name
	case *rsa.PublicKey:
		return fmt.Sprintf("RSA %d", k.N.BitLen())
	case ed25519.PublicKey:
		return "Ed25519"
	default:
		return fmt.Sprintf("%T", public)
	}
}

// KeyType is the algorithm and size of a new key, spelled as in --key-type; empty means
// ECDSAP256.
type KeyType string

// The key types. The hash of a signature follows the signer's key: SHA-256 with P-256, SHA-384
// with P-384 and RSA 3072, SHA-512 with RSA 4096.
const (
	ECDSAP256 KeyType = "ecdsa-p256" // the only type that all clients accept, including managed and FIPS ones
	ECDSAP384 KeyType = "ecdsa-p384"
	RSA3072   KeyType = "rsa-3072"
	RSA4096   KeyType = "rsa-4096"
)

// KeyTypes returns the key types, the default first.
func KeyTypes() []string {
	return []string{string(ECDSAP256), string(ECDSAP384), string(RSA3072), string(RSA4096)}
}

// NewKey generates a key of the default type, ECDSA P-256.
func NewKey() (crypto.Signer, error) { return newKey("") }

func newKey(t KeyType) (key crypto.Signer, err error) {
	switch t {
	case ECDSAP256, "":
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case ECDSAP384:
		key, err = ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	case RSA3072:
		key, err = rsa.GenerateKey(rand.Reader, 3072)
	case RSA4096:
		key, err = rsa.GenerateKey(rand.Reader, 4096)
	default:
		err = t.validate()
	}
	if err != nil {
		return nil, fmt.Errorf("generate key: %w", err)
	}
	return key, nil
}

// validate returns *InvalidError for an unsupported type. For types that users commonly request,
// the error gives the reason.
func (t KeyType) validate() error {
	if t == "" || slices.Contains(KeyTypes(), string(t)) {
		return nil
	}
	reason := "expected " + strings.Join(KeyTypes(), ", ")
	switch name := strings.ToLower(string(t)); {
	case strings.Contains(name, "25519"):
		reason += "; " + ed25519Warning
	case name == "rsa-1024" || name == "rsa-512":
		reason += "; NIST SP 800-131A forbids RSA keys of less than 2048 bits"
	}
	return &InvalidError{"key-type", string(t), reason}
}

// matches reports whether the key has this type: keyType's "ECDSA P-256" is ecdsa-p256, "RSA
// 3072" is rsa-3072.
func (t KeyType) matches(public crypto.PublicKey) bool {
	name := strings.ToLower(strings.NewReplacer(" P-", "-p", " ", "-").Replace(keyType(public)))
	return name == string(cmp.Or(t, ECDSAP256))
}

// ed25519Warning explains the missing Ed25519 key type: managed kube-apiservers responded with
// "unsupported algorithm", and kubeadm rejects such keys.
const ed25519Warning = "managed API servers and FIPS builds refuse Ed25519"
