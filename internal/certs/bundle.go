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

// Bundle is a list of certificates that are trusted or presented together.
type Bundle []*x509.Certificate

// ParseBundle parses PEM data that contains only CERTIFICATE blocks. It returns an error if data
// contains no certificate, another block type, a block with headers, or text after the last
// block. It is strict because readers differ: some skip a bad block, others reject the whole
// file. For a block with headers, crypto/tls loads it, crypto/x509 and client-go skip it, and
// OpenSSL rejects it. ParseBundle accepts text before a block, as OpenSSL writes it, and CRLF
// line endings.
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

// ReadBundle reads and concatenates files as ParseBundle does. It joins the errors, one
// *RefusedError per file.
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

// parseCertificate parses data that contains exactly one certificate.
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

// ReadCertificateFile reads a file that contains exactly one certificate. All errors are
// *RefusedError.
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

// PEM encodes the certificates in order, as CERTIFICATE blocks with LF line endings and a final
// newline.
func (b Bundle) PEM() []byte {
	var out []byte
	for _, cert := range b {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: blockCertificate, Bytes: cert.Raw})...)
	}
	return out
}

// Contains reports whether b contains cert. It compares whole certificates, not subjects,
// because two generations of a CA may share a subject.
func (b Bundle) Contains(cert *x509.Certificate) bool {
	return slices.ContainsFunc(b, cert.Equal)
}

// Merge returns the union of b and more, without duplicates and without certificates that have
// expired at now. The result is sorted oldest first, so the same certificates always give the
// same bytes.
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

// Pool returns the certificates as a pool of trust anchors.
func (b Bundle) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	for _, cert := range b {
		pool.AddCert(cert)
	}
	return pool
}

// ParseCAs parses a CA bundle that was read from path. It returns the CAs sorted, without
// duplicates and without those that have expired at now. It returns *RefusedError if the data is
// malformed, contains a certificate that is not a CA, or contains no valid CA.
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

// Without returns a copy of b without the given certificates.
func (b Bundle) Without(remove ...*x509.Certificate) Bundle {
	return slices.DeleteFunc(slices.Clone(b), Bundle(remove).Contains)
}

// LenientBundle parses a caBundle as x509.CertPool.AppendCertsFromPEM, and therefore
// kube-aggregator, does: it skips everything that it cannot use.
func LenientBundle(data []byte) Bundle { return ReadPEM(data).Certificates }
