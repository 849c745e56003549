// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"cmp"
	"crypto/x509"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"time"

	"example.com/extension-apiserver/internal/certs"
)

// sourceFile is the source that has a URI.
const sourceFile = "file"

// ExpirationsOf says when the certificates in held end, and their CAs. Each CA is listed once, as it was held first.
func ExpirationsOf(held []Held, opts ExpirationOptions) *ExpirationReport {
	r := &ExpirationReport{
		APIVersion: certs.APIVersion, Kind: "ExpirationReport", GeneratedAt: opts.Now.UTC().Truncate(time.Second),
		Certificates: []Expiration{}, Authorities: []AuthorityExpiration{},
	}
	for _, h := range held {
		r.addAuthorities(h, opts)
	}
	var authorities certs.Bundle
	for _, a := range r.Authorities {
		authorities = append(authorities, a.cert)
	}
	for _, h := range held {
		if h.Serving != nil || len(h.Problems) > 0 {
			r.addCertificate(h, authorities, opts)
		}
	}
	r.setRoles()
	for _, e := range r.Certificates {
		r.Summary.add(e.State)
	}
	for _, a := range r.Authorities {
		r.Summary.add(a.State)
	}
	return r
}

func (r *ExpirationReport) addAuthorities(h Held, opts ExpirationOptions) {
	for i, ca := range h.Beside {
		if ca == h.Serving {
			continue
		}
		if a := r.authority(h, ca, i, opts); h.HasKey && i == 0 {
			a.ExternallyManaged = false
		}
	}
	for i, ca := range h.Trusted {
		a := r.authority(h, ca, i, opts)
		a.TrustedBy = append(a.TrustedBy, fmt.Sprintf("%s (%d of %d)", h.Object, i+1, len(h.Trusted)))
		a.trustedIn = append(a.trustedIn, h.Object)
	}
}

// authority returns what is known of the CA, the i-th that h holds.
func (r *ExpirationReport) authority(h Held, ca *x509.Certificate, i int, opts ExpirationOptions) *AuthorityExpiration {
	at := slices.IndexFunc(r.Authorities, func(a AuthorityExpiration) bool { return a.cert.Equal(ca) })
	if at < 0 {
		at = len(r.Authorities)
		name := cmp.Or(h.Name, ca.Subject.CommonName, ca.Subject.String())
		if h.Name != "" && i > 0 {
			name += fmt.Sprintf("#%d", i+1)
		}
		e := newExpiration(h, name)
		e.describe(ca, opts)
		e.Findings = append(e.Findings, h.expiryFindings(ca, Authority, nil, opts)...)
		r.Authorities = append(r.Authorities, AuthorityExpiration{Expiration: e, cert: ca})
	}
	return &r.Authorities[at]
}

// addCertificate adds what is known of what h serves, and of the CA that signed it.
func (r *ExpirationReport) addCertificate(h Held, authorities certs.Bundle, opts ExpirationOptions) {
	e := newExpiration(h, cmp.Or(h.Name, h.Object))
	e.State, e.Missing, e.Findings = StateError, h.Missing, append(e.Findings, h.Problems...)
	if h.Serving != nil {
		e.describe(h.Serving, opts)
		e.CAName = h.Serving.Issuer.CommonName
		e.Findings = append(e.Findings, h.expiryFindings(h.Serving, Serving, authorities, opts)...)
		if i := r.issuer(h.Serving); i >= 0 {
			ca := &r.Authorities[i]
			ca.Issues++
			e.CAName, e.CASHA256, e.ExternallyManaged = ca.Name, ca.SHA256, ca.ExternallyManaged
		}
	}
	r.Certificates = append(r.Certificates, e)
}

// newExpiration is managed elsewhere, as long as no key is at hand.
func newExpiration(h Held, name string) Expiration {
	e := Expiration{Name: name, Source: h.Source, Path: h.Object, Fix: h.Fix, ExternallyManaged: true, Findings: []Finding{}}
	// Without a working directory there is no URI; the path says it too.
	if abs, err := filepath.Abs(h.Object); err == nil && h.Source == sourceFile {
		e.URI = (&url.URL{Scheme: "file", Path: abs}).String()
	}
	return e
}

// expiryFindings are those of a file that holds the certificate alone.
func (h Held) expiryFindings(cert *x509.Certificate, purpose Purpose, seen certs.Bundle, opts ExpirationOptions) []Finding {
	t := &target{
		path: h.Object, purpose: purpose, leaf: cert, seen: seen, cert: &pemFile{path: h.Object, Content: certs.Content{Certificates: certs.Bundle{cert}}},
		// C07 shall find what the states show. Its own 0 has another meaning.
		opts: Options{Now: opts.Now, WarnWithin: max(opts.WarnWithin, opts.FailWithin, 1)},
	}
	out := Sort(Run(expiryChecks(), t, h.Object))
	for i := range out {
		out[i].Fix = cmp.Or(h.Fix, out[i].Fix)
	}
	return out
}

func (e *Expiration) describe(cert *x509.Certificate, opts ExpirationOptions) {
	info := certs.Describe(cert, opts.Now)
	e.Subject, e.Serial, e.SHA256, e.KeyAlgorithm = info.Subject, info.Serial, info.SHA256, info.KeyType
	e.SANs = slices.Concat(info.DNSNames, info.IPAddresses, info.EmailAddresses, info.URIs)
	e.NotBefore, e.NotAfter, e.ExpirationDate, e.RenewAt = &info.NotBefore, &info.NotAfter, &info.NotAfter, &info.RenewAt
	e.ResidualSeconds, e.ResidualTime = info.ResidualSeconds, info.ResidualSeconds
	e.State = opts.state(cert)
}

// state: a certificate that ends exactly when a threshold says so is due.
func (o ExpirationOptions) state(cert *x509.Certificate) State {
	left := cert.NotAfter.Sub(o.Now)
	switch {
	case left < 0:
		return StateExpired
	case o.Now.Before(cert.NotBefore):
		return StateError
	case left <= o.FailWithin:
		return StateDue
	case left <= o.WarnWithin:
		return StateWarn
	}
	return StateOK
}

// issuer returns the index of the CA whose key signed cert, or -1.
func (r *ExpirationReport) issuer(cert *x509.Certificate) int {
	return slices.IndexFunc(r.Authorities, func(a AuthorityExpiration) bool {
		return slices.Equal(a.cert.RawSubject, cert.RawIssuer) && cert.CheckSignatureFrom(a.cert) == nil
	})
}

// setRoles: a CA is retiring when it signed nothing here and is trusted beside one that did, as in a rotation.
func (r *ExpirationReport) setRoles() {
	for i := range r.Authorities {
		a := &r.Authorities[i]
		if a.Issues > 0 {
			a.Role = "signing"
			continue
		}
		if slices.ContainsFunc(r.Authorities, func(other AuthorityExpiration) bool {
			return other.Issues > 0 && slices.ContainsFunc(other.trustedIn, func(path string) bool { return slices.Contains(a.trustedIn, path) })
		}) {
			a.Role = "retiring"
		}
	}
}

func (s *ExpirationSummary) add(state State) {
	*cmp.Or(map[State]*int{StateOK: &s.OK, StateWarn: &s.Warn, StateDue: &s.Due, StateExpired: &s.Expired}[state], &s.Error)++
}
