// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"bytes"
	"crypto/x509"
	"slices"
	"testing"

	"example.com/extension-apiserver/internal/catalogue"
	"example.com/extension-apiserver/internal/certs"
)

// FuzzParse: no file crashes the reader, a file that certs.ParseBundle accepts has no errors,
// and the roots are those that crypto/x509 accepts.
func FuzzParse(f *testing.F) {
	ca, err := certs.NewCA(certs.CAOptions{Name: "fuzz", Usage: x509.ExtKeyUsageServerAuth})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(ca.CertPEM)
	f.Add(append(bytes.Clone(ca.CertPEM), ca.KeyPEM...))
	f.Add(bytes.ReplaceAll(ca.KeyPEM, []byte("\n"), []byte("\r\n")))
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nA: b\n\n-----END CERTIFICATE-----\n-----BEGIN "))
	f.Fuzz(func(t *testing.T, data []byte) {
		file := &pemFile{path: "fuzz", Content: *certs.ReadPEM(data)}
		bad := slices.ContainsFunc(file.problems(), func(f catalogue.Finding) bool { return f.Severity == catalogue.Error })
		if _, err := certs.ParseBundle(data); err == nil && bad {
			t.Errorf("got %+v for a file that internal/certs takes", file.problems())
		}
		pool := x509.NewCertPool()
		if pool.AppendCertsFromPEM(data); !pool.Equal(file.Certificates.Pool()) {
			t.Errorf("got %d certificates, other than crypto/x509", len(file.Certificates))
		}
	})
}
