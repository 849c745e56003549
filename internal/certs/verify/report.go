// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"fmt"
	"slices"
	"time"

	"example.com/extension-apiserver/internal/catalogue"
	"example.com/extension-apiserver/internal/certs"
)

// Options define what certificates are checked against.
type Options struct {
	// Service is the Service in front of the API server. If it is empty, the first name of the
	// form <service>.<namespace>.svc in the certificate is used.
	Service certs.Service
	// AllowedNames are kube-apiserver's --requestheader-allowed-names. nil means
	// front-proxy-client. An empty list allows any name, as in kube-apiserver.
	AllowedNames []string
	// WarnWithin is the time before its expiry at which a certificate is due. 0 means 30 days or
	// a third of its lifetime, whichever is less.
	WarnWithin time.Duration
	Now        time.Time
}

// Report lists the checked objects and the findings.
type Report struct {
	APIVersion  string              `json:"apiVersion"`
	Kind        string              `json:"kind"` // VerifyReport, of files; LiveReport, of a cluster; KonnectivityReport
	GeneratedAt time.Time           `json:"generatedAt"`
	Checked     []Checked           `json:"checked"`
	Findings    []catalogue.Finding `json:"findings"` // the worst first
	Summary     catalogue.Summary   `json:"summary"`
}

// Checked is one checked object.
type Checked struct {
	Object     string  `json:"object"`               // as in findings
	Purpose    Purpose `json:"purpose,omitempty"`    // of the certificate, or the role of a container
	ServerName string  `json:"serverName,omitempty"` // that kube-aggregator verifies
	// Detail is the subject of a certificate, the image of a container, or an observation.
	Detail      string                 `json:"detail,omitempty"`
	NotAfter    *time.Time             `json:"notAfter,omitempty"`
	Certificate *certs.CertificateInfo `json:"certificate,omitempty"` // all properties of a file's certificate
	catalogue.Counts
}

// NewReport returns a report of the given kind with the checked objects and the findings.
func NewReport(kind string, now time.Time, checked []Checked, findings []catalogue.Finding) *Report {
	// Neither list is null in JSON.
	findings = catalogue.Sort(append([]catalogue.Finding{}, findings...))
	return &Report{
		APIVersion: certs.APIVersion, Kind: kind, GeneratedAt: now.UTC().Truncate(time.Second),
		Checked: append([]Checked{}, checked...), Findings: findings,
		Summary: catalogue.Summary{Checked: len(checked), Counts: catalogue.Count(findings)},
	}
}

// CountObjects sets the counts of each checked object from the findings about it. It adds
// objects that occur only in findings.
func CountObjects(checked []Checked, findings []catalogue.Finding) []Checked {
	for _, f := range findings {
		if !slices.ContainsFunc(checked, func(c Checked) bool { return c.Object == f.Object }) {
			checked = append(checked, Checked{Object: f.Object})
		}
	}
	for i := range checked {
		checked[i].Counts = catalogue.Count(slices.DeleteFunc(slices.Clone(findings),
			func(f catalogue.Finding) bool { return f.Object != checked[i].Object }))
	}
	return checked
}

// Failed reports whether there is a finding of severity error or, if strict is true, of severity
// warning.
func (r *Report) Failed(strict bool) bool {
	return r.Summary.Errors > 0 || strict && r.Summary.Warnings > 0
}

// Paths verifies the certificates in files and in directories and everything below them, each
// with the key and the ca.crt next to it. Problems with a file are findings. Paths returns an
// error for a path that does not exist or contains no certificates. It skips CAs that certgen
// init moved aside.
//
// A certificate's peers trust the ca.crt next to tls.crt. For other files, all roots among paths
// are used instead.
func Paths(paths []string, opts Options) (*Report, error) {
	targets, err := load(paths, opts)
	if err != nil {
		return nil, err
	}
	var checked []Checked
	var all []catalogue.Finding
	for _, t := range targets {
		findings := catalogue.Sort(catalogue.Run(checks, t, t.path))
		c := Checked{Object: t.path, Purpose: t.purpose, ServerName: t.serverName, Counts: catalogue.Count(findings)}
		if t.leaf != nil {
			info := certs.Describe(t.leaf, opts.Now)
			c.Certificate, c.Detail, c.NotAfter = &info, info.Subject, &info.NotAfter
		}
		checked = append(checked, c)
		all = append(all, findings...)
	}
	return NewReport("VerifyReport", opts.Now, checked, all), nil
}

// TimeLeft formats a duration in days, and below two days in hours or minutes. It rounds down.
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
