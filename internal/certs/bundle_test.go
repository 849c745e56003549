// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestParseBundle(t *testing.T) {
	a, b := newServingCA(t), newServingCA(t)
	two := append(bytes.Clone(a.CertPEM), b.CertPEM...)
	damaged := bytes.Replace(two, []byte("\nM"), []byte("\n!"), 1)
	for name, tc := range map[string]struct {
		data []byte
		want int
		err  string
	}{
		"one":                {a.CertPEM, 1, ""},
		"two":                {two, 2, ""},
		"CRLF":               {bytes.ReplaceAll(two, []byte("\n"), []byte("\r\n")), 2, ""},
		"text before":        {append([]byte("subject=CN = a\n"), two...), 2, ""},
		"no newline at end":  {bytes.TrimSpace(two), 2, ""},
		"empty":              {nil, 0, "found no PEM block"},
		"a newline":          {[]byte("\n"), 0, "found no PEM block"},
		"base64 of PEM":      {[]byte("LS0tLS1CRUdJTg=="), 0, "found no PEM block"},
		"key":                {append(bytes.Clone(a.CertPEM), a.KeyPEM...), 0, `found "PRIVATE KEY"`},
		"cut off":            {two[:len(two)-40], 0, "damaged PEM blocks (1 of 2)"},
		"damaged in between": {damaged, 0, "damaged PEM blocks (1 of 2)"},
		"text at the end":    {append(bytes.Clone(two), "what is this"...), 0, "text after the last PEM block"},
		"not a certificate": {[]byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), 0,
			"certificate 1 malformed"},
		"headers": {append(bytes.Clone(a.CertPEM), withHeader(b.CertPEM)...), 0,
			"certificate 2 in a block with headers"},
		"OpenSSL's own": {bytes.ReplaceAll(a.CertPEM, []byte(" CERT"), []byte(" TRUSTED CERT")), 0,
			`found "TRUSTED CERTIFICATE"`},
		"certificate request": {[]byte("-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n"), 0, `found "CERTIFICATE REQUEST"`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseBundle(tc.data)
			if tc.err != "" {
				wantError(t, err, tc.err)
				return
			}
			if err != nil || len(got) != tc.want {
				t.Errorf("got %d certificates, %v; want %d", len(got), err, tc.want)
			}
		})
	}
}

// TestPEMHeaders shows why ParseBundle and ParsePrivateKey reject headers.
func TestPEMHeaders(t *testing.T) {
	leaf := issueServing(t, newServingCA(t), "a.b.svc")
	cert, key := withHeader(leaf.CertPEM), withHeader(leaf.KeyPEM)
	if _, err := tls.X509KeyPair(cert, key); err != nil {
		t.Errorf("crypto/tls: got %v, want the pair loaded", err)
	}
	if x509.NewCertPool().AppendCertsFromPEM(cert) {
		t.Error("crypto/x509: got a certificate, want none")
	}
	for command, data := range map[string][]byte{"x509": cert, "pkey": key} {
		path := filepath.Join(t.TempDir(), "file.pem")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := openssl(t, command, "-in", path, "-noout"); err == nil {
			t.Errorf("openssl %s: got no error, want the file refused: %s", command, out)
		}
	}
}

func TestBundleMerge(t *testing.T) {
	old := newCA(t, CAOptions{Usage: x509.ExtKeyUsageServerAuth, Now: at(epoch.Add(-CALifetime - time.Minute))})
	a, b := newCA(t, CAOptions{Usage: x509.ExtKeyUsageServerAuth, Now: at(epoch.Add(-time.Hour))}), newServingCA(t)
	got := Bundle{b.Certificate, old.Certificate}.Merge(epoch, a.Certificate, b.Certificate)
	want := Bundle{a.Certificate, b.Certificate}
	if !bytes.Equal(got.PEM(), want.PEM()) {
		t.Errorf("got %d certificates, want the two valid ones, oldest first, without doubles", len(got))
	}
	if again := (Bundle{a.Certificate}).Merge(epoch, b.Certificate); !bytes.Equal(got.PEM(), again.PEM()) {
		t.Error("the same set gives other bytes in another order")
	}
}

func TestParseCAs(t *testing.T) {
	expired := newCA(t, CAOptions{Usage: x509.ExtKeyUsageServerAuth, Now: at(epoch.Add(-CALifetime - time.Minute))})
	ca := newServingCA(t)
	leaf, err := ca.IssueServing(ServingOptions{DNSNames: []string{"widgets.demo.svc"}})
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct{ file, want string }{
		"not PEM":      {"x", "PEM"},
		"a leaf":       {string(ca.CertPEM) + string(leaf.CertPEM), "expected CAs only"},
		"only expired": {string(expired.CertPEM), "found only expired ones"},
	} {
		if got, err := ParseCAs([]byte(tc.file), "a.crt", epoch); err == nil ||
			!strings.Contains(err.Error(), tc.want) || !strings.HasPrefix(err.Error(), "a.crt: ") {
			t.Errorf("%s: got %d certificates and %v, want a.crt refused with %q", name, len(got), err, tc.want)
		}
	}
	got, err := ParseCAs(append(expired.CertPEM, ca.CertPEM...), "a.crt", epoch)
	if err != nil || !bytes.Equal(got.PEM(), ca.CertPEM) {
		t.Errorf("got %d certificates, %v; want the one that is valid", len(got), err)
	}
}

// FuzzParseBundle: no input crashes the parser, and accepted input survives a round trip.
func FuzzParseBundle(f *testing.F) {
	ca, err := NewCA(CAOptions{Name: "fuzz", Usage: x509.ExtKeyUsageServerAuth})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(ca.CertPEM)
	f.Add(append(bytes.Clone(ca.CertPEM), ca.CertPEM...))
	f.Add(ca.KeyPEM)
	f.Add([]byte("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----"))
	f.Fuzz(func(t *testing.T, data []byte) {
		_, _ = ParsePrivateKey(data)
		b, err := ParseBundle(data)
		if err != nil {
			return
		}
		again, err := ParseBundle(b.PEM())
		if err != nil || !bytes.Equal(b.PEM(), again.PEM()) {
			t.Errorf("%d certificates came back as %d: %v", len(b), len(again), err)
		}
	})
}
