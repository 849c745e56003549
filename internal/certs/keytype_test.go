// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"path/filepath"
	"strings"
	"testing"
)

func TestKeyTypes(t *testing.T) {
	for kind, want := range map[KeyType]struct {
		key       string
		signature x509.SignatureAlgorithm
	}{
		"":        {"ECDSA P-256", x509.ECDSAWithSHA256},
		ECDSAP256: {"ECDSA P-256", x509.ECDSAWithSHA256},
		ECDSAP384: {"ECDSA P-384", x509.ECDSAWithSHA384},
		RSA3072:   {"RSA 3072", x509.SHA384WithRSA},
		RSA4096:   {"RSA 4096", x509.SHA512WithRSA},
	} {
		t.Run(string(kind), func(t *testing.T) {
			ca := newCA(t, CAOptions{Usage: x509.ExtKeyUsageClientAuth, KeyType: kind})
			leaf, err := ca.IssueClient(ClientOptions{User: "jane", KeyType: kind})
			if err != nil {
				t.Fatal(err)
			}
			for _, pair := range []*KeyPair{&ca.KeyPair, leaf} {
				if got := keyType(pair.Key.Public()); got != want.key ||
					pair.Certificate.SignatureAlgorithm != want.signature || !kind.matches(pair.Key.Public()) {
					t.Errorf("%s: got %s signed with %s, want %s signed with %s", pair, got,
						pair.Certificate.SignatureAlgorithm, want.key, want.signature)
				}
			}
			// An RSA key could also be used for key exchange. TLS 1.3 does not use it for that,
			// so our certificates do not allow it.
			if got := leaf.Certificate.KeyUsage; got != x509.KeyUsageDigitalSignature {
				t.Errorf("got key usages %s, want digitalSignature alone", keyUsageNames(got))
			}
			if err := verifyClient(leaf.Certificate, ca.CertPEM); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestRejectedKeyTypes(t *testing.T) {
	for kind, want := range map[KeyType]string{
		"ed25519": "managed API servers and FIPS builds refuse Ed25519", "Ed25519": "FIPS",
		"rsa-1024": "less than 2048 bits",
		"rsa-2048": "expected ecdsa-p256, ecdsa-p384, rsa-3072, rsa-4096", "P256": "expected ecdsa-p256",
	} {
		_, err := newKey(kind)
		wantError(t, err, want)
		_, err = NewCA(CAOptions{Name: "x", Usage: x509.ExtKeyUsageServerAuth, KeyType: kind})
		wantError(t, err, want)
		opts := initOptions(t.TempDir(), epoch)
		opts.KeyType = kind
		wantError(t, opts.Validate(), `key-type "`+string(kind)+`": `)
		if got := Flatten(opts.Validate()); len(got) != 1 {
			t.Errorf("got %q, want the type refused once, not for each certificate", got)
		}
	}
}

// TestInitKeepsOtherKeyTypes: Init keeps a strong key pair of another type and reports it. Only
// leaves get the new type, when they are due.
func TestInitKeepsOtherKeyTypes(t *testing.T) {
	dir := t.TempDir()
	mustInit(t, initOptions(dir, epoch))
	opts := initOptions(dir, epoch)
	opts.KeyType = ECDSAP384
	for _, item := range mustInit(t, opts).Items {
		if notes := strings.Join(item.Notes, " "); item.Action != Kept ||
			!strings.Contains(notes, "the key is ECDSA P-256") {
			t.Errorf("%s: got %s, notes %q; want it unchanged and a word on its key", item.Name, item.Action, notes)
		}
	}
	opts.Now = at(epoch.Add(61 * day))
	for _, item := range mustInit(t, opts).Items {
		want := "ECDSA P-384"
		if item.Certificate.CA {
			want = "ECDSA P-256"
		}
		if item.Certificate.KeyType != want {
			t.Errorf("%s: got %s, want %s", item.Name, item.Certificate.KeyType, want)
		}
	}
}

// TestInitFindsEd25519: Init does not keep an existing Ed25519 key as a strong key of another
// type. It replaces a leaf and refuses a CA.
func TestInitFindsEd25519(t *testing.T) {
	for dir, want := range map[string]string{ServingDir: "tls.key was damaged: check key", ServingCADir: "check key"} {
		out := t.TempDir()
		mustInit(t, initOptions(out, epoch))
		_, key, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		ca, err := ReadKeyPair(filepath.Join(out, ServingCADir))
		if err != nil {
			t.Fatal(err)
		}
		pair := forgeWithKey(t, *ca, &x509.Certificate{NotBefore: epoch, NotAfter: epoch.Add(90 * day)}, key)
		if err := pair.Write(filepath.Join(out, dir), nil); err != nil {
			t.Fatal(err)
		}
		report, err := Init(t.Context(), initOptions(out, epoch))
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			got = actions(report)[dir]
		}
		if !strings.Contains(got, want) || !strings.Contains(got, "found Ed25519") {
			t.Errorf("%s: got %q, want %q and the reason", dir, got, want)
		}
	}
}
