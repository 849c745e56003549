// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"fmt"
	"time"

	"example.com/extension-apiserver/internal/certs"
)

// Options say what certificates are checked against.
type Options struct {
	// Service is the one in front of the API server. Empty: the first <service>.<namespace>.svc in the certificate.
	Service certs.Service
	// AllowedNames are kube-apiserver's --requestheader-allowed-names. nil means front-proxy-client; empty, as there,
	// means any name.
	AllowedNames []string
	// WarnWithin is how long before its end a certificate is due. 0 means 30 days, or a third of its life where that
	// is less.
	WarnWithin time.Duration
	Now        time.Time
}

func (o Options) allowedNames() []string {
	if o.AllowedNames == nil {
		return []string{certs.FrontProxyUser}
	}
	return o.AllowedNames
}

// Report says what was checked and what was found.
type Report struct {
	APIVersion  string    `json:"apiVersion"`
	Kind        string    `json:"kind"` // VerifyReport
	GeneratedAt time.Time `json:"generatedAt"`
	Checked     []Checked `json:"checked"`
	Results
}

// Checked is one certificate, or a key without one.
type Checked struct {
	Path       string     `json:"path"`
	Purpose    Purpose    `json:"purpose"`
	ServerName string     `json:"serverName,omitempty"` // that kube-aggregator asks for
	Subject    string     `json:"subject,omitempty"`
	NotAfter   *time.Time `json:"notAfter,omitempty"`
	// Certificate is all that it says; nil for a key without one.
	Certificate *certs.CertificateInfo `json:"certificate,omitempty"`
	Tally
}

// Paths verifies the certificates in files and directories and everything below them, each with the key and the ca.crt
// beside it. What is wrong with a file is a finding; an error is a path that does not exist or holds no certificates.
// CAs that certgen init moved aside are passed over.
//
// A certificate's peers trust ca.crt beside tls.crt. For other files, any root among paths stands for it.
func Paths(paths []string, opts Options) (*Report, error) {
	targets, err := load(paths, opts)
	if err != nil {
		return nil, err
	}
	r := &Report{APIVersion: certs.APIVersion, Kind: "VerifyReport", GeneratedAt: opts.Now.UTC().Truncate(time.Second)}
	var all []Finding
	for _, t := range targets {
		findings := Sort(Run(checks, t, t.path))
		c := Checked{Path: t.path, Purpose: t.purpose, ServerName: t.serverName, Tally: Count(findings)}
		if t.leaf != nil {
			info := certs.Describe(t.leaf, opts.Now)
			c.Certificate, c.Subject, c.NotAfter = &info, info.Subject, &info.NotAfter
		}
		r.Checked = append(r.Checked, c)
		all = append(all, findings...)
	}
	r.Results = NewResults(all, len(r.Checked))
	return r, nil
}

// Left names a time that is left as people do: in days, and below two days in hours or minutes. It rounds down.
func Left(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + Left(-d)
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
}
