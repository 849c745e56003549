// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"fmt"
	"slices"
	"strings"
)

// KeyType names the algorithm and size of a new key, as --key-type spells it; empty means ECDSAP256.
type KeyType string

// The key types. The signer's hash follows its key: SHA-256 with P-256, SHA-384 with P-384 and RSA 3072, SHA-512 with
// RSA 4096.
const (
	ECDSAP256 KeyType = "ecdsa-p256" // the one kind that every client of the field, managed and FIPS ones too, accepts
	ECDSAP384 KeyType = "ecdsa-p384"
	RSA3072   KeyType = "rsa-3072"
	RSA4096   KeyType = "rsa-4096"
)

// KeyTypes lists the key types, the default first.
func KeyTypes() []KeyType { return []KeyType{ECDSAP256, ECDSAP384, RSA3072, RSA4096} }

// NewKey makes a key of the default type, ECDSA P-256.
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

// validate returns *InvalidError for a type that there is not, with the reason where people ask for it.
func (t KeyType) validate() error {
	if t == "" || slices.Contains(KeyTypes(), t) {
		return nil
	}
	reason := "expected " + keyTypeList()
	switch name := strings.ToLower(string(t)); {
	case strings.Contains(name, "25519"):
		reason += "; " + whyNotEd25519
	case name == "rsa-1024" || name == "rsa-512":
		reason += "; NIST SP 800-131A forbids RSA keys of less than 2048 bits"
	}
	return &InvalidError{"key-type", string(t), reason}
}

func keyTypeList() string {
	var names []string
	for _, t := range KeyTypes() {
		names = append(names, string(t))
	}
	return strings.Join(names, ", ")
}

// matches tells whether the key is of this type: keyType's "ECDSA P-256" is ecdsa-p256, "RSA 3072" rsa-3072.
func (t KeyType) matches(public crypto.PublicKey) bool {
	name := strings.ToLower(strings.NewReplacer(" P-", "-p", " ", "-").Replace(keyType(public)))
	return name == string(cmp.Or(t, ECDSAP256))
}

// whyNotEd25519: managed kube-apiservers answered with "unsupported algorithm", kubeadm refuses such keys.
const whyNotEd25519 = "managed API servers and FIPS builds refuse Ed25519"
