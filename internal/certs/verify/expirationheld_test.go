// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"crypto/x509"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/extension-apiserver/internal/catalogue"
	"example.com/extension-apiserver/internal/certs"
)

// TestExpirationsOf: during a rotation, the report lists each CA once with all objects that
// trust it, and each certificate with its CA.
func TestExpirationsOf(t *testing.T) {
	f := newFixture(t)
	old := f.ca(certs.CAOptions{Usage: x509.ExtKeyUsageServerAuth,
		Now: func() time.Time { return epoch.Add(100*day - certs.CALifetime) }})
	both := certs.Bundle{old.Certificate, f.servingCA.Certificate}
	held := []Held{
		{Source: "endpoint", Object: "endpoint 10.0.0.1:6443", Serving: f.serving.Certificate, Fix: "renew it"},
		{Source: "APIService", Object: "APIService v1.g", Trusted: both, Fix: "rotate it"},
		{Source: "APIService", Object: "APIService v2.g", Trusted: both[1:], Fix: "rotate it"},
		{Source: "ConfigMap", Object: "ConfigMap c", Trusted: certs.Bundle{f.clientCA.Certificate}},
		{Source: "endpoint", Object: "endpoint 10.0.0.2:6443",
			Problems: []catalogue.Finding{{ID: "K12", Object: "endpoint 10.0.0.2:6443", Evidence: "refused"}}},
		{Source: "Secret", Object: "Secret s"}, // trusts no CA and serves no certificate
	}
	for left, want := range map[time.Duration][]string{
		90 * day: {
			"endpoint 10.0.0.1:6443 by test-ca ok []", "endpoint 10.0.0.2:6443 by  error [K12]",
			`test-ca "retiring" issues 0, trusted by APIService v1.g (1 of 2), ok []`,
			`test-ca "signing" issues 1, trusted by APIService v1.g (2 of 2), APIService v2.g (1 of 1), ok []`,
			`test-ca "" issues 0, trusted by ConfigMap c (1 of 1), ok []`,
		},
		5 * day: {
			"endpoint 10.0.0.1:6443 by test-ca due [C07]", "endpoint 10.0.0.2:6443 by  error [K12]",
			`test-ca "retiring" issues 0, trusted by APIService v1.g (1 of 2), warn [C07]`,
			`test-ca "signing" issues 1, trusted by APIService v1.g (2 of 2), APIService v2.g (1 of 1), ok []`,
			`test-ca "" issues 0, trusted by ConfigMap c (1 of 1), ok []`,
		},
	} {
		r := ExpirationsOf(held, ExpirationOptions{WarnWithin: 30 * day, FailWithin: 7 * day,
			Now: f.serving.Certificate.NotAfter.Add(-left)})
		ids := func(e Expiration) []string {
			out := []string{}
			for _, finding := range e.Findings {
				if out = append(out, finding.ID); finding.ID == "C07" && finding.Fix != e.Fix {
					t.Errorf("%s: the fix is %q, want %q", e.Name, finding.Fix, e.Fix)
				}
			}
			return out
		}
		name := func(s string) string { // CA generations have a suffix
			s, _, _ = strings.Cut(s, "@")
			return s
		}
		var got []string
		for _, e := range r.Certificates {
			got = append(got, fmt.Sprintf("%s by %s %s %v", e.Name, name(e.CAName), e.State, ids(e)))
			if e.Path != e.Name || e.Source == "" || !e.ExternallyManaged || e.URI != "" || e.Missing {
				t.Errorf("got %+v", e)
			}
		}
		for _, a := range r.Authorities {
			got = append(got, fmt.Sprintf("%s %q issues %d, trusted by %s, %s %v", name(a.Name), a.Role, a.Issues,
				strings.Join(a.TrustedBy, ", "), a.State, ids(a.Expiration)))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s left (-want +got):\n%s", left, diff)
		}
		if !failed(r) || r.Summary[StateError] != 1 {
			t.Errorf("%s left: got %+v, want one error", left, r.Summary)
		}
	}
}
