// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"cmp"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"
)

// Bundle is a list of certificates that are trusted, or shown, together.
type Bundle []*x509.Certificate

// ParseBundle reads PEM that holds certificates and nothing else: at least one, no other block type, no headers in a
// block, no text after the last one. It is strict because readers differ: some skip a bad block and some refuse the
// whole file. A block with headers is loaded by crypto/tls, skipped by crypto/x509 and client-go, refused by OpenSSL.
// Text before a block, as OpenSSL writes it, is allowed; so are CRLF line ends.
func ParseBundle(data []byte) (Bundle, error) {
	c := ReadPEM(data)
	switch {
	case c.foreign != "":
		return nil, fmt.Errorf("parse certificates: expected only PEM blocks CERTIFICATE, found %q", c.foreign)
	case len(c.Problems) > 0:
		return nil, fmt.Errorf("parse certificates: expected a PEM block CERTIFICATE for each, found %s",
			c.Problems[0].Text)
	}
	return c.Certificates, nil
}

// ReadBundle reads files as ParseBundle does. What is wrong with them is *RefusedError, joined.
func ReadBundle(paths ...string) (Bundle, error) {
	var out Bundle
	var errs []error
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			errs = append(errs, &RefusedError{Path: path, Reason: fmt.Sprintf("expected a readable file: %v",
				errors.Unwrap(err))})
			continue
		}
		b, err := ParseBundle(data)
		if err != nil {
			errs = append(errs, &RefusedError{Path: path, Reason: err.Error()})
		}
		out = append(out, b...)
	}
	return out, errors.Join(errs...)
}

// parseCertificate reads exactly one certificate.
func parseCertificate(data []byte) (*x509.Certificate, error) {
	b, err := ParseBundle(data)
	if err == nil && len(b) != 1 {
		err = fmt.Errorf("parse certificate: expected one, found %d", len(b))
	}
	if err != nil {
		return nil, err
	}
	return b[0], nil
}

// ReadCertificateFile reads a file with exactly one certificate. What is wrong with it is *RefusedError.
func ReadCertificateFile(path string) (*x509.Certificate, error) {
	b, err := ReadBundle(path)
	if err == nil && len(b) != 1 {
		err = &RefusedError{Path: path, Reason: fmt.Sprintf("parse certificate: expected one, found %d", len(b))}
	}
	if err != nil {
		return nil, err
	}
	return b[0], nil
}

// PEM encodes the certificates in order: CERTIFICATE blocks only, LF line ends, one newline at the end.
func (b Bundle) PEM() []byte {
	var out []byte
	for _, cert := range b {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: blockCertificate, Bytes: cert.Raw})...)
	}
	return out
}

// Contains compares whole certificates, not subjects: two generations of a CA may share a subject.
func (b Bundle) Contains(cert *x509.Certificate) bool {
	return slices.ContainsFunc(b, cert.Equal)
}

// Merge returns the union of b and more without doubles and without those expired at now, oldest first, so that the
// same set always gives the same bytes.
func (b Bundle) Merge(now time.Time, more ...*x509.Certificate) Bundle {
	var out Bundle
	for _, cert := range slices.Concat(b, more) {
		if !now.After(cert.NotAfter) && !out.Contains(cert) {
			out = append(out, cert)
		}
	}
	slices.SortFunc(out, func(x, y *x509.Certificate) int {
		return cmp.Or(x.NotBefore.Compare(y.NotBefore), bytes.Compare(x.Raw, y.Raw))
	})
	return out
}

// Pool returns the certificates as trust anchors.
func (b Bundle) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	for _, cert := range b {
		pool.AddCert(cert)
	}
	return pool
}

// ParseCAs returns what peers may trust of a file that was read from path: CAs only, sorted, none twice, none that has
// expired. What is wrong with it is a *RefusedError.
func ParseCAs(data []byte, path string, now time.Time) (Bundle, error) {
	all, err := ParseBundle(data)
	if err != nil {
		return nil, &RefusedError{Path: path, Reason: err.Error()}
	}
	for _, cert := range all {
		if !cert.IsCA {
			return nil, &RefusedError{Path: path, Reason: fmt.Sprintf(
				"expected CAs only, found %s; use the file of the CA that signed it", cert.Subject)}
		}
	}
	bundle := all.Merge(now)
	if len(bundle) == 0 {
		return nil, &RefusedError{Path: path,
			Reason: "expected a valid CA, found only expired ones; issue a new one: certgen init"}
	}
	return bundle, nil
}

// Without returns a copy that lacks those certificates.
func (b Bundle) Without(remove ...*x509.Certificate) Bundle {
	return slices.DeleteFunc(slices.Clone(b), Bundle(remove).Contains)
}

// LenientBundle reads what x509.CertPool.AppendCertsFromPEM, and so kube-aggregator, takes from a caBundle: it passes
// over everything that it cannot use.
func LenientBundle(data []byte) Bundle { return ReadPEM(data).Certificates }
