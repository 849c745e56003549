// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"cmp"
	"crypto/x509"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"example.com/extension-apiserver/internal/catalogue"
	"example.com/extension-apiserver/internal/certs"
)

// ExpirationOptions define when a certificate is due.
type ExpirationOptions struct {
	WarnWithin time.Duration // a certificate with at most this much time left has the state warn
	FailWithin time.Duration // a certificate with at most this much time left has the state due, which is worse
	Now        time.Time
}

// State describes how close a certificate is to its expiry.
type State string

// The states.
const (
	StateOK      State = "ok"      // more time left than both thresholds
	StateWarn    State = "warn"    // at most WarnWithin left
	StateDue     State = "due"     // at most FailWithin left
	StateExpired State = "expired" // it has expired
	StateError   State = "error"   // it is missing, unreadable or not valid yet
)

// ExpirationReport reports when certificates expire.
type ExpirationReport struct {
	APIVersion   string                `json:"apiVersion"`
	Kind         string                `json:"kind"` // ExpirationReport
	GeneratedAt  time.Time             `json:"generatedAt"`
	Certificates []Expiration          `json:"certificates"`
	Authorities  []AuthorityExpiration `json:"authorities"`
	Summary      map[State]int         `json:"summary"` // number of certificates and CAs in each state
}

// Expiration describes one certificate. Times are UTC. Name, ExpirationDate, ResidualTime,
// CAName, ExternallyManaged and Missing have the same names as in kubeadm certs
// check-expiration, for scripts that read both.
type Expiration struct {
	Name              string              `json:"name"`   // of its directory, or of its file without extension
	Source            string              `json:"source"` // file; or, for a cluster, see Held
	URI               string              `json:"uri"`    // of a file
	Path              string              `json:"path"`   // as given; for a cluster, the object
	Subject           string              `json:"subject"`
	SANs              []string            `json:"sans"`
	Serial            string              `json:"serial"` // hexadecimal
	SHA256            string              `json:"sha256"` // of the DER encoding
	NotBefore         *time.Time          `json:"notBefore"`
	NotAfter          *time.Time          `json:"notAfter"`
	ExpirationDate    *time.Time          `json:"expirationDate"` // the same as NotAfter
	RenewAt           *time.Time          `json:"renewAt"`
	ResidualSeconds   int64               `json:"residualSeconds"` // negative once expired
	ResidualTime      int64               `json:"residualTime"`    // the same
	CAName            string              `json:"caName,omitempty"`
	CASHA256          string              `json:"caSha256,omitempty"` // empty if no file contains the CA
	KeyAlgorithm      string              `json:"keyAlgorithm"`
	State             State               `json:"state"`
	Missing           bool                `json:"missing"`           // a tls.key exists without its tls.crt
	ExternallyManaged bool                `json:"externallyManaged"` // the key that signs its successor is not among the files
	Findings          []catalogue.Finding `json:"findings"`          // of C07 and C08, and why it could not be read
	// Fix is what to do when it is due, if that depends on the source.
	Fix string `json:"fix,omitempty"`
}

// AuthorityExpiration describes one CA. It is externally managed if its own key is not among the
// files.
type AuthorityExpiration struct {
	Expiration
	// Role is signing if the CA signed one of the certificates, and retiring if it is only
	// trusted, next to one that did.
	Role   string `json:"role,omitempty"`
	Issues int    `json:"issues"` // number of the certificates that it signed
	// TrustedBy lists the ca.crt files, or the objects of a cluster, that contain the CA, with
	// its position.
	TrustedBy []string `json:"trustedBy,omitempty"`

	cert      *x509.Certificate
	trustedIn []string
}

// Held contains the certificates that a file, or a part of a cluster, serves, stores or trusts.
type Held struct {
	Source string // file, endpoint, Secret, APIService or ConfigMap
	Object string // as in findings; for a file, its path
	Name   string // as in the report; empty means Object, and for CAs their common name
	// Serving is the certificate that it serves or stores; nil if it has only CAs.
	Serving *x509.Certificate
	Trusted certs.Bundle // CAs
	// Beside contains all certificates in a certificate's file, including Serving. Peers do not
	// trust a CA just because it is in there.
	Beside  certs.Bundle
	HasKey  bool   // the key of the first one in Beside exists too
	Fix     string // what to do when one of them is due
	Missing bool   // a key exists without its certificate
	// Problems are the reasons why nothing could be read.
	Problems []catalogue.Finding
}

// InFiles returns the certificates in files and in directories and everything below them, as
// Paths reads them, CAs first. It returns an error for a path that does not exist or contains no
// certificates.
func InFiles(paths []string, now time.Time) ([]Held, error) {
	targets, err := load(paths, Options{Now: now})
	if err != nil {
		return nil, err
	}
	var authorities, others []Held
	for _, t := range targets {
		h := Held{Source: sourceFile, Object: t.path, Name: t.name}
		switch {
		case t.purpose == KeyOnly && filepath.Base(t.path) != certs.KeyFile: // such as kubeadm's sa.key
		case t.leaf == nil:
			h.Missing, h.Problems = t.cert == nil, catalogue.Sort(catalogue.Run(checks, t, t.path))
			others = append(others, h)
		case t.purpose == Authority:
			h.Beside, h.HasKey = t.cert.Certificates, t.key != nil
			authorities = append(authorities, h)
		default:
			h.Serving, h.Beside = t.leaf, t.cert.Certificates
			others = append(others, h)
			if t.bundle != nil {
				others = append(others, Held{Source: sourceFile, Object: t.bundle.path, Name: t.name + "/" +
					certs.BundleFile, Trusted: t.bundle.Certificates})
			}
		}
	}
	return append(authorities, others...), nil
}

// sourceFile is the only source with a URI.
const sourceFile = "file"

// ExpirationsOf reports when the certificates in held and their CAs expire. It lists each CA
// once, described by its first occurrence in held.
func ExpirationsOf(held []Held, opts ExpirationOptions) *ExpirationReport {
	r := &ExpirationReport{
		APIVersion: certs.APIVersion, Kind: "ExpirationReport", GeneratedAt: opts.Now.UTC().Truncate(time.Second),
		Certificates: []Expiration{}, Authorities: []AuthorityExpiration{},
		Summary: map[State]int{StateOK: 0, StateWarn: 0, StateDue: 0, StateExpired: 0, StateError: 0},
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

// authority returns the entry of a CA, the i-th that h contains. It adds the entry if it does
// not exist.
func (r *ExpirationReport) authority(h Held, ca *x509.Certificate, i int, opts ExpirationOptions) *AuthorityExpiration {
	at := slices.IndexFunc(r.Authorities, func(a AuthorityExpiration) bool { return a.cert.Equal(ca) })
	if at < 0 {
		at = len(r.Authorities)
		name := cmp.Or(h.Name, ca.Subject.CommonName, ca.Subject.String())
		if h.Name != "" && i > 0 {
			name += fmt.Sprintf("#%d", i+1)
		}
		e := newExpiration(h, name)
		e.describe(h, ca, Authority, nil, opts)
		r.Authorities = append(r.Authorities, AuthorityExpiration{Expiration: e, cert: ca})
		r.Summary[e.State]++
	}
	return &r.Authorities[at]
}

// addCertificate adds the certificate that h serves, with the CA that signed it.
func (r *ExpirationReport) addCertificate(h Held, authorities certs.Bundle, opts ExpirationOptions) {
	e := newExpiration(h, cmp.Or(h.Name, h.Object))
	e.State, e.Missing, e.Findings = StateError, h.Missing, append(e.Findings, h.Problems...)
	if h.Serving != nil {
		e.describe(h, h.Serving, Serving, authorities, opts)
		e.CAName = h.Serving.Issuer.CommonName
		if i := r.issuer(h.Serving); i >= 0 {
			ca := &r.Authorities[i]
			ca.Issues++
			e.CAName, e.CASHA256, e.ExternallyManaged = ca.Name, ca.SHA256, ca.ExternallyManaged
		}
	}
	r.Certificates = append(r.Certificates, e)
	r.Summary[e.State]++
}

// newExpiration returns an entry that is externally managed until its CA's key is found.
func newExpiration(h Held, name string) Expiration {
	e := Expiration{Name: name, Source: h.Source, Path: h.Object, Fix: h.Fix, ExternallyManaged: true,
		Findings: []catalogue.Finding{}}
	// Without a working directory, there is no URI; Path still identifies the file.
	if abs, err := filepath.Abs(h.Object); err == nil && h.Source == sourceFile {
		// RFC 8089: also file:///C:/pki
		e.URI = (&url.URL{Scheme: "file", Path: "/" + strings.TrimPrefix(filepath.ToSlash(abs), "/")}).String()
	}
	return e
}

// describe sets the properties of one of the certificates in h. It adds the findings for a file
// that contains only that certificate.
func (e *Expiration) describe(h Held, cert *x509.Certificate, purpose Purpose, seen certs.Bundle,
	opts ExpirationOptions) {
	info := certs.Describe(cert, opts.Now)
	e.Subject, e.Serial, e.SHA256, e.KeyAlgorithm = info.Subject, info.Serial, info.SHA256, info.KeyType
	e.SANs = slices.Concat(info.DNSNames, info.IPAddresses, info.EmailAddresses, info.URIs)
	e.NotBefore, e.NotAfter, e.ExpirationDate, e.RenewAt = &info.NotBefore, &info.NotAfter,
		&info.NotAfter, &info.RenewAt
	e.ResidualSeconds, e.ResidualTime = info.ResidualSeconds, info.ResidualSeconds
	e.State = opts.state(cert)

	t := &target{
		path: h.Object, purpose: purpose, leaf: cert, seen: seen,
		cert: &pemFile{path: h.Object, Content: certs.Content{Certificates: certs.Bundle{cert}}},
		// C07 must agree with the states. For C07, a WarnWithin of 0 selects its default, so use
		// at least 1.
		opts: Options{Now: opts.Now, WarnWithin: max(opts.WarnWithin, opts.FailWithin, 1)},
	}
	ofTime := slices.DeleteFunc(slices.Clone(checks), func(c catalogue.Check[*target]) bool {
		return c.ID != "C07" &&
			c.ID != "C08"
	})
	for _, f := range catalogue.Sort(catalogue.Run(ofTime, t, h.Object)) {
		f.Fix = cmp.Or(h.Fix, f.Fix)
		e.Findings = append(e.Findings, f)
	}
}

// state returns the state of cert. The thresholds are inclusive: a certificate with exactly
// FailWithin left is due.
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

// setRoles sets the roles of the CAs. A CA is retiring if it signed none of the certificates and
// is trusted next to one that did, as in a rotation.
func (r *ExpirationReport) setRoles() {
	for i := range r.Authorities {
		a := &r.Authorities[i]
		if a.Issues > 0 {
			a.Role = "signing"
			continue
		}
		if slices.ContainsFunc(r.Authorities, func(other AuthorityExpiration) bool {
			return other.Issues > 0 && slices.ContainsFunc(other.trustedIn,
				func(path string) bool { return slices.Contains(a.trustedIn, path) })
		}) {
			a.Role = "retiring"
		}
	}
}
