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

// Expirations says when the certificates in files and directories and everything below them end, and their CAs. It
// groups and reads files as Paths does; an error is a path that does not exist or holds no certificates.
func Expirations(paths []string, opts ExpirationOptions) (*ExpirationReport, error) {
	// C07 shall find what the states show. Its own 0 has another meaning.
	warn := max(opts.WarnWithin, opts.FailWithin, 1)
	targets, err := load(paths, Options{Now: opts.Now, WarnWithin: warn})
	if err != nil {
		return nil, err
	}
	r := newExpirationReport(opts)
	r.addAuthorities(targets, opts)
	for _, t := range targets {
		if t.purpose == Authority || t.purpose == KeyOnly && filepath.Base(t.path) != certs.KeyFile {
			continue
		}
		r.addCertificate(t.expiration(opts), t.leaf)
	}
	r.finish()
	return r, nil
}

func newExpirationReport(opts ExpirationOptions) *ExpirationReport {
	return &ExpirationReport{
		APIVersion: certs.APIVersion, Kind: "ExpirationReport", GeneratedAt: opts.Now.UTC().Truncate(time.Second),
		Certificates: []Expiration{}, Authorities: []AuthorityExpiration{},
	}
}

// addCertificate adds what is known of leaf, which is nil when there is none, and of the CA that signed it.
func (r *ExpirationReport) addCertificate(e Expiration, leaf *x509.Certificate) {
	if leaf != nil {
		if i := r.issuer(leaf); i >= 0 {
			ca := &r.Authorities[i]
			ca.Issues++
			e.CAName, e.CASHA256, e.ExternallyManaged = ca.Name, ca.SHA256, ca.ExternallyManaged
		}
	}
	r.Certificates = append(r.Certificates, e)
}

// finish sets what all certificates together decide.
func (r *ExpirationReport) finish() {
	r.setRoles()
	for _, e := range r.Certificates {
		r.Summary.add(e.State)
	}
	for _, a := range r.Authorities {
		r.Summary.add(a.State)
	}
}

// expiration describes the target's own certificate.
func (t *target) expiration(opts ExpirationOptions) Expiration {
	e := Expiration{Name: t.name, State: StateError, ExternallyManaged: true, Findings: []Finding{}}
	if t.leaf == nil {
		e.locate(t.path)
		e.Missing = t.cert == nil
		e.Findings = Sort(Run(checks, t, t.path))
		return e
	}
	e.locate(t.path)
	e.describe(t.leaf, opts)
	e.CAName = t.leaf.Issuer.CommonName
	for _, f := range Sort(Run(expiryChecks(), t, t.path)) {
		if f.Object == t.path {
			e.Findings = append(e.Findings, f)
		}
	}
	return e
}

func (e *Expiration) locate(path string) {
	e.Source, e.Path = "file", path
	// Without a working directory there is no URI; the path says it too.
	if abs, err := filepath.Abs(path); err == nil {
		e.URI = (&url.URL{Scheme: "file", Path: abs}).String()
	}
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

// addAuthorities lists each CA once, under the name of its own files if they are there, else of the first file that
// holds it.
func (r *ExpirationReport) addAuthorities(targets []*target, opts ExpirationOptions) {
	add := func(t *target, f *pemFile, i int, name string) *AuthorityExpiration {
		cert := f.Certificates[i]
		if i > 0 {
			name += fmt.Sprintf("#%d", i+1)
		}
		at := slices.IndexFunc(r.Authorities, func(a AuthorityExpiration) bool { return a.cert.Equal(cert) })
		if at < 0 {
			at = len(r.Authorities)
			a := AuthorityExpiration{cert: cert}
			a.Name, a.Findings, a.ExternallyManaged = name, []Finding{}, true
			a.locate(f.path)
			a.describe(cert, opts)
			r.Authorities = append(r.Authorities, a)
		}
		a := &r.Authorities[at]
		if t.purpose == Authority && cert == t.leaf {
			// A key that lies beside the certificate can sign: the CA is managed from here.
			a.ExternallyManaged = t.key == nil
			a.Findings = append(a.Findings, t.expiration(opts).Findings...)
		}
		return a
	}
	for _, t := range targets {
		if t.purpose == Authority {
			for i := range t.cert.Certificates {
				add(t, t.cert, i, t.name)
			}
		}
	}
	for _, t := range targets {
		if t.leaf == nil || t.purpose == Authority {
			continue
		}
		for i := 1; i < len(t.cert.Certificates); i++ {
			add(t, t.cert, i, t.name)
		}
		if t.bundle == nil {
			continue
		}
		for i := range t.bundle.Certificates {
			a := add(t, t.bundle, i, t.name+"/"+certs.BundleFile)
			a.TrustedBy = append(a.TrustedBy, fmt.Sprintf("%s (%d of %d)", t.bundle.path, i+1, len(t.bundle.Certificates)))
			a.trustedIn = append(a.trustedIn, t.bundle.path)
		}
	}
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
