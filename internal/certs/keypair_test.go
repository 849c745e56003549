// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"testing"
)

func TestParsePrivateKey(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	sec1DER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := EncodePrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ed, err := EncodePrivateKey(edKey)
	if err != nil {
		t.Fatal(err)
	}
	weak, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p224, err := EncodePrivateKey(weak)
	if err != nil {
		t.Fatal(err)
	}
	sec1 := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: sec1DER})
	for name, tc := range map[string]struct {
		data []byte
		err  string
	}{
		"PKCS#8": {pkcs8, ""},
		"SEC 1":  {sec1, ""},
		"OpenSSL parameters": {append(
			[]byte("-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n"), sec1...), ""},
		"two keys":          {append(bytes.Clone(sec1), sec1...), "found 2 private keys"},
		"empty":             {nil, "found no PEM block"},
		"text":              {[]byte("secret"), "found no PEM block"},
		"text before":       {append([]byte("Bag Attributes\n"), pkcs8...), ""},
		"text after":        {append(bytes.Clone(pkcs8), "what is this"...), "found text after the last PEM block"},
		"white space after": {append(bytes.Clone(pkcs8), " \r\n\t\n"...), ""},
		"headers":           {withHeader(sec1), `found a block "EC PRIVATE KEY" with headers`},
		"damaged before": {append(bytes.Replace(pkcs8, []byte("\nM"), []byte("\n!"), 1), sec1...),
			"damaged PEM blocks (1 of 2)"},
		"damaged after": {append(bytes.Clone(pkcs8), "-----BEGIN CERTIFICATE-----\n"...),
			"damaged PEM blocks (1 of 2)"},
		"cut off": {pkcs8[:len(pkcs8)-30], "damaged PEM blocks (1 of 1)"},
		"encrypted": {[]byte("-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n"),
			`found a block "ENCRYPTED PRIVATE KEY"`},
		"garbage": {[]byte("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"),
			"without a usable key"},
		"Ed25519": {ed, "found Ed25519"},
		"P-224":   {p224, "found ECDSA P-224"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParsePrivateKey(tc.data)
			if tc.err != "" {
				wantError(t, err, tc.err)
				return
			}
			if err != nil || !key.Equal(got) {
				t.Errorf("got %v, want the key back", err)
			}
		})
	}
}

// withHeader adds a header to the first block.
func withHeader(data []byte) []byte {
	return bytes.Replace(data, []byte("-----\n"), []byte("-----\nComment: x\n\n"), 1)
}

func TestKeyPairPEM(t *testing.T) {
	pair := issueServing(t, newServingCA(t), "a.b.svc")
	if _, err := tls.X509KeyPair(pair.CertPEM, pair.KeyPEM); err != nil {
		t.Errorf("load pair as a TLS server does: %v", err)
	}
	if block, rest := pem.Decode(pair.KeyPEM); block == nil || block.Type != "PRIVATE KEY" || len(rest) > 0 {
		t.Error("want the key as one PEM block PRIVATE KEY")
	}
	public, err := EncodePublicKey(pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(public)
	got, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil || !SamePublicKey(got, pair.Key.Public()) {
		t.Errorf("got %v, want the public key back", err)
	}
}

// TestKeyStaysSecret: no common way to print a key pair reveals the key.
func TestKeyStaysSecret(t *testing.T) {
	ca := newServingCA(t)
	scalar, err := mustECDSA(t, &ca.KeyPair).Bytes()
	if err != nil {
		t.Fatal(err)
	}
	secret := new(big.Int).SetBytes(scalar)
	asJSON, err := json.Marshal(ca)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{fmt.Sprintf("%v %+v %#v %s", ca, ca, ca, ca),
		fmt.Sprintf("%v %+v %#v", ca.KeyPair, ca.KeyPair, &ca.KeyPair), string(asJSON)} {
		for _, form := range []string{secret.String(), secret.Text(16), "PRIVATE",
			strings.Split(string(ca.KeyPEM), "\n")[1], fmt.Sprintf("%d", ca.KeyPEM)} {
			if strings.Contains(text, form) {
				t.Errorf("the key is in %q", text)
			}
		}
	}
}
