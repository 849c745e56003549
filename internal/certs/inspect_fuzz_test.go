// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// inspectFuzzPairs are what seeds are made of: a CA and a leaf, always new, since no key is kept in the tree.
func inspectFuzzPairs(f *testing.F) (*CA, *KeyPair) {
	f.Helper()
	ca, err := NewCA(CAOptions{Name: "fuzz", Usage: x509.ExtKeyUsageServerAuth, Now: at(epoch)})
	if err != nil {
		f.Fatal(err)
	}
	leaf, err := ca.IssueServing(ServingOptions{DNSNames: []string{"a.b.svc"}, IPs: []string{"127.0.0.1"}})
	if err != nil {
		f.Fatal(err)
	}
	return ca, leaf
}

// FuzzInspect: no file crashes the inspection or makes it fail. What it shows of a file without findings is what is in it,
// certificate by certificate, and never the key.
func FuzzInspect(f *testing.F) {
	ca, leaf := inspectFuzzPairs(f)
	chain := slices.Concat(leaf.CertPEM, ca.CertPEM)
	damaged := func(data []byte) []byte { return bytes.Replace(data, []byte("\nM"), []byte("\n!"), 1) }
	for _, data := range [][]byte{
		nil, {}, damaged(chain), slices.Concat(damaged(leaf.CertPEM), leaf.KeyPEM), slices.Concat(damaged(ca.KeyPEM), leaf.KeyPEM, chain),
		slices.Concat([]byte("Bag Attributes\n"), leaf.KeyPEM, []byte("subject=CN = a.b.svc\n"), leaf.CertPEM), slices.Concat([]byte("Bag Attributes\n"), leaf.KeyPEM),
		[]byte("\n"), chain, leaf.KeyPEM, slices.Concat(leaf.KeyPEM, chain), slices.Concat(chain, ca.KeyPEM), slices.Concat(leaf.KeyPEM, ca.KeyPEM),
		chain[:len(chain)-40], slices.Concat(chain, []byte("-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n")),
		[]byte("-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n" + string(leaf.KeyPEM)),
		slices.Concat([]byte("-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n"), bytes.TrimSpace(leaf.KeyPEM), []byte("\f")),
		[]byte("-----BEGIN PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nAAAA\n-----END PRIVATE KEY-----\n"), []byte("-----BEGIN RSA PRIVATE KEY-----\n-----END RSA PRIVATE KEY-----\n"),
	} {
		for kind := range extensions {
			f.Add(uint8(kind), data)
		}
	}
	path := filepath.Join(f.TempDir(), "file")
	f.Fuzz(func(t *testing.T, kind uint8, data []byte) {
		file := path + extensions[int(kind)%len(extensions)]
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
		}()
		report, err := Inspect([]string{file}, epoch)
		if err != nil || len(report.Files) != 1 {
			t.Fatalf("got %+v and error %v, want the one file: what is wrong with it is a finding", report, err)
		}
		got := report.Files[0]
		checkShown(t, report, data)
		if len(got.Findings) > 0 {
			return
		}
		var want []string
		keys, blocks := 0, 0
		for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
			blocks++
			switch block.Type {
			case "CERTIFICATE":
				sum := sha256.Sum256(block.Bytes)
				want = append(want, hex.EncodeToString(sum[:]))
			case "EC PARAMETERS":
			default:
				keys++
			}
		}
		// pem.Decode steps over a damaged block; without findings there is none.
		if begun := bytes.Count(data, []byte("-----BEGIN ")); begun != blocks {
			t.Errorf("got no findings in a file in which %d PEM blocks begin and %d are whole: %q", begun, blocks, data)
		}
		var shown []string
		for _, cert := range got.Certificates {
			shown = append(shown, cert.SHA256)
		}
		if !slices.Equal(want, shown) || keys > 1 || (keys == 1) != (got.Key != nil) || len(want)+keys == 0 {
			t.Errorf("got the certificates %v and the key %+v, want %v and %d keys", shown, got.Key, want, keys)
		}
		again, err := ParseBundle(got.certs.PEM())
		if len(want) > 0 && (err != nil || !slices.EqualFunc(again, got.certs, (*x509.Certificate).Equal)) {
			t.Errorf("%d certificates came back as %d: %v", len(got.certs), len(again), err)
		}
	})
}

// checkShown: a report can be printed, and has nothing of a private key in it.
func checkShown(t *testing.T, report *Inspection, data []byte) {
	t.Helper()
	text, err := json.Marshal(report)
	if err != nil {
		t.Fatal(err)
	}
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if key, err := parseKeyBlock(block); err == nil {
			encoded, err := EncodePrivateKey(key)
			if err != nil {
				t.Fatal(err)
			}
			lines := bytes.Split(encoded, []byte("\n"))
			if bytes.Contains(text, lines[1]) {
				t.Fatalf("the report shows a private key: %s", text)
			}
		}
	}
}

// FuzzCertificate: any bytes that the standard library takes for a certificate can be judged, described and encoded again.
func FuzzCertificate(f *testing.F) {
	ca, leaf := inspectFuzzPairs(f)
	f.Add(ca.Certificate.Raw)
	f.Add(leaf.Certificate.Raw)
	f.Add(bytes.TrimSuffix(leaf.Certificate.Raw, leaf.Certificate.Signature))
	f.Fuzz(func(t *testing.T, der []byte) {
		encoded := pem.EncodeToMemory(&pem.Block{Type: blockCertificate, Bytes: der})
		bundle, err := ParseBundle(encoded)
		if err != nil {
			return
		}
		if len(bundle) != 1 || !bytes.Equal(bundle[0].Raw, der) || !bytes.Equal(bundle.PEM(), encoded) {
			t.Fatalf("got %d certificates, %x, want the one that was encoded, %x", len(bundle), bundle[0].Raw, der)
		}
		for _, now := range []time.Time{epoch, {}, time.Unix(1<<40, 0)} {
			info := Describe(bundle[0], now)
			if _, err := json.Marshal(info); err != nil {
				t.Errorf("description: %v", err)
			}
		}
		if merged := bundle.Merge(bundle[0].NotAfter, bundle...); len(merged) != 1 || !merged.Contains(bundle[0]) {
			t.Errorf("got %d certificates of one that is there twice, want it once", len(merged))
		}
		subjects, _ := chainOf(bundle[0], bundle)
		if len(subjects) != 1 {
			t.Errorf("got the chain %q of a certificate alone, want it alone", subjects)
		}
	})
}
