// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"cmp"
	"crypto/x509"
	"fmt"
	"slices"

	"example.com/extension-apiserver/internal/certs"
)

// Held is what a part of a cluster serves, stores or trusts.
type Held struct {
	Source string // endpoint, Secret, APIService or ConfigMap
	Object string // as findings call it
	// Serving is the certificate that it serves or stores; nil where it only trusts.
	Serving *x509.Certificate
	Trusted certs.Bundle // CAs
	Fix     string       // what to do when one of them is due
	// Problems are why nothing could be read.
	Problems []Finding
}

// ExpirationsOf says the same of a cluster as Expirations of files: each CA is listed once, under its common name. No key
// is at hand, so all is managed elsewhere.
func ExpirationsOf(held []Held, opts ExpirationOptions) *ExpirationReport {
	r := newExpirationReport(opts)
	var authorities certs.Bundle
	for _, h := range held {
		for i, ca := range h.Trusted {
			r.trust(h, i, opts)
			authorities = append(authorities, ca)
		}
	}
	for _, h := range held {
		if h.Serving == nil && len(h.Problems) == 0 {
			continue
		}
		e := Expiration{
			Name: h.Object, Source: h.Source, Path: h.Object, Fix: h.Fix, State: StateError, ExternallyManaged: true,
			Findings: append([]Finding{}, h.Problems...),
		}
		if h.Serving != nil {
			e.describe(h.Serving, opts)
			e.CAName = h.Serving.Issuer.CommonName
			e.Findings = append(e.Findings, h.expiryFindings(h.Serving, Serving, authorities, opts)...)
		}
		r.addCertificate(e, h.Serving)
	}
	r.finish()
	return r
}

// trust adds the i-th CA that h trusts.
func (r *ExpirationReport) trust(h Held, i int, opts ExpirationOptions) {
	ca := h.Trusted[i]
	at := slices.IndexFunc(r.Authorities, func(a AuthorityExpiration) bool { return a.cert.Equal(ca) })
	if at < 0 {
		at = len(r.Authorities)
		a := AuthorityExpiration{cert: ca, Expiration: Expiration{
			Name: cmp.Or(ca.Subject.CommonName, ca.Subject.String()), Source: h.Source, Path: h.Object, Fix: h.Fix, ExternallyManaged: true,
		}}
		a.describe(ca, opts)
		a.Findings = append([]Finding{}, h.expiryFindings(ca, Authority, nil, opts)...)
		r.Authorities = append(r.Authorities, a)
	}
	a := &r.Authorities[at]
	a.TrustedBy = append(a.TrustedBy, fmt.Sprintf("%s (%d of %d)", h.Object, i+1, len(h.Trusted)))
	a.trustedIn = append(a.trustedIn, h.Object)
}

// expiryFindings are those of a file that holds the certificate alone.
func (h Held) expiryFindings(cert *x509.Certificate, purpose Purpose, seen certs.Bundle, opts ExpirationOptions) []Finding {
	t := &target{
		path: h.Object, purpose: purpose, leaf: cert, seen: seen, cert: &pemFile{path: h.Object, Content: certs.Content{Certificates: certs.Bundle{cert}}},
		opts: Options{Now: opts.Now, WarnWithin: max(opts.WarnWithin, opts.FailWithin, 1)},
	}
	out := Sort(Run(expiryChecks(), t, h.Object))
	for i := range out {
		out[i].Fix = cmp.Or(h.Fix, out[i].Fix)
	}
	return out
}
