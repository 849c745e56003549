// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"testing"
	"time"
)

// FuzzCertificate: any certificate that the standard library parses can be checked, described
// and encoded again.
func FuzzCertificate(f *testing.F) {
	ca, err := NewCA(CAOptions{Name: "fuzz", Usage: x509.ExtKeyUsageServerAuth, Now: at(epoch)})
	if err != nil {
		f.Fatal(err)
	}
	leaf, err := ca.IssueServing(ServingOptions{DNSNames: []string{"a.b.svc"}, IPs: []string{"127.0.0.1"}})
	if err != nil {
		f.Fatal(err)
	}
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
			t.Errorf("got %d certificates of one that occurs twice, want it once", len(merged))
		}
	})
}
