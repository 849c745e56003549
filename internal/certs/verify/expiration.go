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

	"example.com/extension-apiserver/internal/certs"
)

// ExpirationOptions say which certificates are due.
type ExpirationOptions struct {
	WarnWithin time.Duration // a certificate with no more left than this has the state warn
	FailWithin time.Duration // likewise due, which is worse
	Now        time.Time
}

// State says how near a certificate's end is.
type State string

// The states, each with what it means.
const (
	StateOK      State = "ok"      // more left than both thresholds
	StateWarn    State = "warn"    // no more left than WarnWithin
	StateDue     State = "due"     // no more left than FailWithin
	StateExpired State = "expired" // it has ended
	StateError   State = "error"   // it is missing, cannot be read, or is not valid yet
)

// ExpirationReport says when certificates end.
type ExpirationReport struct {
	APIVersion   string                `json:"apiVersion"`
	Kind         string                `json:"kind"` // ExpirationReport
	GeneratedAt  time.Time             `json:"generatedAt"`
	Certificates []Expiration          `json:"certificates"`
	Authorities  []AuthorityExpiration `json:"authorities"`
	Summary      map[State]int         `json:"summary"` // how many certificates and CAs have each state
}

// Expiration is one certificate. Times are UTC. Name, ExpirationDate, ResidualTime, CAName, ExternallyManaged and
// Missing are what kubeadm certs check-expiration calls so, for scripts that read both.
type Expiration struct {
	Name              string     `json:"name"`   // of its directory, or of its file without extension
	Source            string     `json:"source"` // file; or, of a cluster, see Held
	URI               string     `json:"uri"`    // of a file
	Path              string     `json:"path"`   // as it was given; of a cluster, the object
	Subject           string     `json:"subject"`
	SANs              []string   `json:"sans"`
	Serial            string     `json:"serial"` // hexadecimal
	SHA256            string     `json:"sha256"` // of the DER
	NotBefore         *time.Time `json:"notBefore"`
	NotAfter          *time.Time `json:"notAfter"`
	ExpirationDate    *time.Time `json:"expirationDate"` // the same as NotAfter
	RenewAt           *time.Time `json:"renewAt"`
	ResidualSeconds   int64      `json:"residualSeconds"` // negative once expired
	ResidualTime      int64      `json:"residualTime"`    // the same
	CAName            string     `json:"caName,omitempty"`
	CASHA256          string     `json:"caSha256,omitempty"` // empty when no file holds the CA
	KeyAlgorithm      string     `json:"keyAlgorithm"`
	State             State      `json:"state"`
	Missing           bool       `json:"missing"`           // there is a tls.key without its tls.crt
	ExternallyManaged bool       `json:"externallyManaged"` // the key that signs its successor is not among the files
	Findings          []Finding  `json:"findings"`          // of C07 and C08, and why it could not be read
	// what to do when it is due, where that depends on the source
	Fix string `json:"fix,omitempty"`
}

// AuthorityExpiration is one CA. It is externally managed when its own key is not among the files.
type AuthorityExpiration struct {
	Expiration
	// signing: it signed a certificate here; retiring: it is only trusted, beside one that did
	Role   string `json:"role,omitempty"`
	Issues int    `json:"issues"` // how many of the certificates it signed
	// the ca.crt files, or objects of a cluster, that hold it, and where in them
	TrustedBy []string `json:"trustedBy,omitempty"`

	cert      *x509.Certificate
	trustedIn []string
}

// Held is what a file, or a part of a cluster, serves, stores or trusts.
type Held struct {
	Source string // file, endpoint, Secret, APIService or ConfigMap
	Object string // as findings call it; of a file its path
	Name   string // as a report calls it; empty means Object, and for CAs their common name
	// Serving is the certificate that it serves or stores; nil where it only has CAs.
	Serving *x509.Certificate
	Trusted certs.Bundle // CAs
	// what else the file of a certificate holds, and that itself: CAs that nobody trusts for being there
	Beside  certs.Bundle
	HasKey  bool   // the key of the first one in Beside is there too
	Fix     string // what to do when one of them is due
	Missing bool   // there is a key without its certificate
	// Problems are why nothing could be read.
	Problems []Finding
}

// InFiles reads what files and directories and everything below them hold, as Paths does, CAs first. An error is a path
// that does not exist or holds no certificates.
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
			h.Missing, h.Problems = t.cert == nil, Sort(Run(checks, t, t.path))
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

// sourceFile is the source that has a URI.
const sourceFile = "file"

// ExpirationsOf says when the certificates in held end, and their CAs. Each CA is listed once, as it was held first.
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
		e.describe(h, ca, Authority, nil, opts)
		r.Authorities = append(r.Authorities, AuthorityExpiration{Expiration: e, cert: ca})
		r.Summary[e.State]++
	}
	return &r.Authorities[at]
}

// addCertificate adds what is known of what h serves, and of the CA that signed it.
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

// newExpiration is managed elsewhere, as long as no key is at hand.
func newExpiration(h Held, name string) Expiration {
	e := Expiration{Name: name, Source: h.Source, Path: h.Object, Fix: h.Fix, ExternallyManaged: true,
		Findings: []Finding{}}
	// Without a working directory there is no URI; the path says it too.
	if abs, err := filepath.Abs(h.Object); err == nil && h.Source == sourceFile {
		// RFC 8089: also file:///C:/pki
		e.URI = (&url.URL{Scheme: "file", Path: "/" + strings.TrimPrefix(filepath.ToSlash(abs), "/")}).String()
	}
	return e
}

// describe adds what is known of one of the certificates of h, with the findings of a file that holds it alone.
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
		// C07 shall find what the states show. Its own 0 has another meaning.
		opts: Options{Now: opts.Now, WarnWithin: max(opts.WarnWithin, opts.FailWithin, 1)},
	}
	ofTime := slices.DeleteFunc(slices.Clone(checks), func(c Check[*target]) bool {
		return c.ID != "C07" &&
			c.ID != "C08"
	})
	for _, f := range Sort(Run(ofTime, t, h.Object)) {
		f.Fix = cmp.Or(h.Fix, f.Fix)
		e.Findings = append(e.Findings, f)
	}
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
			return other.Issues > 0 && slices.ContainsFunc(other.trustedIn,
				func(path string) bool { return slices.Contains(a.trustedIn, path) })
		}) {
			a.Role = "retiring"
		}
	}
}
