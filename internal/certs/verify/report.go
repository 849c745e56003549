// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"fmt"
	"slices"
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

// Report says what was checked and what was found.
type Report struct {
	APIVersion  string    `json:"apiVersion"`
	Kind        string    `json:"kind"` // VerifyReport, of files; LiveReport, of a cluster; KonnectivityReport
	GeneratedAt time.Time `json:"generatedAt"`
	Checked     []Checked `json:"checked"`
	Findings    []Finding `json:"findings"` // the worst first
	Summary     Summary   `json:"summary"`
}

// Checked is one thing that was looked at.
type Checked struct {
	Object     string  `json:"object"`               // as findings call it
	Purpose    Purpose `json:"purpose,omitempty"`    // what it is for
	ServerName string  `json:"serverName,omitempty"` // that kube-aggregator asks for
	// of a certificate its subject, of a container its image, or what was seen
	Detail      string                 `json:"detail,omitempty"`
	NotAfter    *time.Time             `json:"notAfter,omitempty"`
	Certificate *certs.CertificateInfo `json:"certificate,omitempty"` // all that a file's certificate says
	Counts
}

// NewReport returns a report of that kind, with what was found about what was checked.
func NewReport(kind string, now time.Time, checked []Checked, findings []Finding) *Report {
	// Neither is null in JSON.
	findings = Sort(append([]Finding{}, findings...))
	return &Report{
		APIVersion: certs.APIVersion, Kind: kind, GeneratedAt: now.UTC().Truncate(time.Second),
		Checked: append([]Checked{}, checked...), Findings: findings, Summary: Summary{len(checked), Count(findings)},
	}
}

// CountObjects counts findings with the object that they name, and adds objects of which nothing else is known.
func CountObjects(checked []Checked, findings []Finding) []Checked {
	for _, f := range findings {
		if !slices.ContainsFunc(checked, func(c Checked) bool { return c.Object == f.Object }) {
			checked = append(checked, Checked{Object: f.Object})
		}
	}
	for i := range checked {
		checked[i].Counts = Count(slices.DeleteFunc(slices.Clone(findings),
			func(f Finding) bool { return f.Object != checked[i].Object }))
	}
	return checked
}

// Failed tells whether there is a finding of severity error, or with strict also one of severity warning.
func (r *Report) Failed(strict bool) bool {
	return r.Summary.Errors > 0 || strict && r.Summary.Warnings > 0
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
	var checked []Checked
	var all []Finding
	for _, t := range targets {
		findings := Sort(Run(checks, t, t.path))
		c := Checked{Object: t.path, Purpose: t.purpose, ServerName: t.serverName, Counts: Count(findings)}
		if t.leaf != nil {
			info := certs.Describe(t.leaf, opts.Now)
			c.Certificate, c.Detail, c.NotAfter = &info, info.Subject, &info.NotAfter
		}
		checked = append(checked, c)
		all = append(all, findings...)
	}
	return NewReport("VerifyReport", opts.Now, checked, all), nil
}

// TimeLeft names a time that is left as people do: in days, and below two days in hours or minutes. It rounds down.
func TimeLeft(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + TimeLeft(-d)
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
}
