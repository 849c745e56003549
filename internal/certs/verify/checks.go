// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"crypto/ed25519"
	"crypto/x509"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"example.com/extension-apiserver/internal/catalogue"
	"example.com/extension-apiserver/internal/certs"
)

func found(format string, args ...any) []catalogue.Finding {
	return []catalogue.Finding{{Evidence: fmt.Sprintf(format, args...)}}
}

// checkChain reports a verification failure that no other check explains.
func checkChain(t *target) []catalogue.Finding {
	if t.unchecked {
		f := found("the chain was not checked: no file contains the CA %q that signed the certificate", t.leaf.Issuer)
		f[0].Severity, f[0].Fix = catalogue.Info,
			"name the CA's file on the command line too, or store it beside the certificate as "+certs.BundleFile
		return f
	}
	explained := []x509.InvalidReason{x509.Expired, x509.IncompatibleUsage, x509.TooManyIntermediates,
		x509.CANotAuthorizedForThisName}
	if t.refusal == nil || slices.ContainsFunc(explained, t.refusedFor) {
		return nil
	}
	return found("%v", t.refusal)
}

func checkUsage(t *target) []catalogue.Finding {
	usage := t.purpose.usage()
	switch {
	case usage == x509.ExtKeyUsageAny:
		return nil
	case !certs.Permits(t.leaf, usage):
		return found("extended key usages %s, expected %s", usages(t.leaf), usage)
	case t.refusedFor(x509.IncompatibleUsage):
		var cas []string
		for _, ca := range t.issuers(t.leaf) {
			cas = append(cas, fmt.Sprintf("%s allows %s", ca.Subject, usages(ca)))
		}
		return found("no CA in the chain allows %s: %s", usage, strings.Join(cas, "; "))
	}
	return nil
}

func usages(cert *x509.Certificate) string {
	return strings.Join(certs.Describe(cert, time.Time{}).ExtKeyUsages, ", ")
}

func checkBothUsages(t *target) []catalogue.Finding {
	// An empty list allows any usage as well. It is so common in old certificates that a warning
	// would be noise.
	if t.purpose.leaf() && len(t.leaf.ExtKeyUsage) > 0 && certs.Permits(t.leaf, x509.ExtKeyUsageServerAuth) &&
		certs.Permits(t.leaf, x509.ExtKeyUsageClientAuth) {
		return found("extended key usages %s", usages(t.leaf))
	}
	return nil
}

func checkServerName(t *target) []catalogue.Finding {
	if t.purpose == Server && known[t.name] == "" {
		f := found("not checked: the Service of the server is unknown")
		f[0].Severity, f[0].Fix = catalogue.Info,
			"for the certificate of an API server, add --service NAME --namespace NAMESPACE"
		return f
	}
	if t.purpose != Serving {
		return nil
	}
	if t.serverName == "" {
		return found("none of its DNS names %q has the form <service>.<namespace>.svc", t.leaf.DNSNames)
	}
	if err := t.leaf.VerifyHostname(t.serverName); err != nil {
		return found("%v", err)
	}
	return nil
}

func checkOutlivesCA(t *target) []catalogue.Finding {
	issuers := t.issuers(t.leaf)
	if t.purpose == Authority || len(issuers) == 0 {
		return nil
	}
	longest := slices.MaxFunc(issuers, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) })
	if t.leaf.NotAfter.After(longest.NotAfter) {
		return found("expires at %s, its CA %s at %s", timeText(t.leaf.NotAfter), longest.Subject,
			timeText(longest.NotAfter))
	}
	return nil
}

func checkPathLength(t *target) []catalogue.Finding {
	if t.refusedFor(x509.TooManyIntermediates) {
		return found("%v", t.refusal)
	}
	return nil
}

func checkNameConstraints(t *target) []catalogue.Finding {
	if t.refusedFor(x509.CANotAuthorizedForThisName) {
		return found("%v", t.refusal)
	}
	if t.purpose != Serving {
		return nil
	}
	var out []catalogue.Finding
	for _, ca := range t.issuers(t.leaf) {
		if len(ca.PermittedDNSDomains) == 0 {
			out = append(out, catalogue.Finding{
				Severity: catalogue.Info, Evidence: fmt.Sprintf("the CA %s has no name constraints", ca.Subject),
				Fix: "optional: replace the CA with one that certgen init issues; it is limited to the Service's names",
			})
		}
	}
	return out
}

func checkAllowedName(t *target) []catalogue.Finding {
	allowed := t.opts.AllowedNames
	if allowed == nil {
		allowed = []string{certs.FrontProxyUser}
	}
	if t.purpose != FrontProxy || len(allowed) == 0 || slices.Contains(allowed, t.leaf.Subject.CommonName) {
		return nil
	}
	return found("common name %q, expected one of %q", t.leaf.Subject.CommonName, allowed)
}

func timeText(t time.Time) string { return t.UTC().Format(time.RFC3339) }

type member struct {
	cert *x509.Certificate
	path string // of its file
	name string // "" for the target's own certificate, otherwise its position and subject
}

// members returns the target's certificate, then the other certificates that the server sends,
// then those in ca.crt.
func (t *target) members() []member {
	var out []member
	for _, f := range []*pemFile{t.cert, t.bundle} {
		if f == nil {
			continue
		}
		for i, cert := range f.Certificates {
			m := member{cert: cert, path: f.path}
			if cert != t.leaf {
				m.name = fmt.Sprintf("certificate %d (%s) ", i+1, cert.Subject)
			}
			out = append(out, m)
		}
	}
	return out
}

func (m member) found(severity catalogue.Severity, format string, args ...any) catalogue.Finding {
	return catalogue.Finding{Severity: severity, Object: m.path, Evidence: m.name + fmt.Sprintf(format, args...)}
}

// dueWithin equals the time at which certgen init renews its leaves of 90 days. It is also
// enough for certificates that are valid for a year.
const dueWithin = 30 * 24 * time.Hour

// Due reports whether cert should be renewed, which is when at most within is left until it
// expires. If within is 0, Due uses 30 days or a third of the certificate's lifetime, whichever
// is less.
func Due(cert *x509.Certificate, now time.Time, within time.Duration) bool {
	if within == 0 {
		within = min(dueWithin, cert.NotAfter.Sub(certs.RenewAt(cert)))
	}
	return cert.NotAfter.Sub(now) <= within
}

// rotateCA is the fix for a CA: a client that trusts only the old CA rejects the leaves of the
// new one.
const rotateCA = "plan the rotation of the CA: its clients must trust the new CA before that signs a certificate"

func checkValidity(t *target) []catalogue.Finding {
	var out []catalogue.Finding
	now := t.opts.Now
	for _, m := range t.members() {
		severity := catalogue.Error
		if m.cert != t.leaf && !t.refusedFor(x509.Expired) {
			severity = catalogue.Warning // the verifier found another chain
		}
		switch {
		case now.After(m.cert.NotAfter):
			f := m.found(severity, "expired at %s", timeText(m.cert.NotAfter))
			if m.cert != t.leaf && severity == catalogue.Warning {
				f.Fix = "no action needed: nothing depends on it, and certgen init removes it when it next writes the file"
			}
			out = append(out, f)
		case now.Before(m.cert.NotBefore):
			f := m.found(severity, "not valid before %s; the local time is %s", timeText(m.cert.NotBefore),
				timeText(now))
			f.Fix = "correct the clock of this machine, or of the machine that issued the certificate"
			out = append(out, f)
		case Due(m.cert, now, t.opts.WarnWithin):
			f := m.found(catalogue.Warning, "expires at %s, in %s", timeText(m.cert.NotAfter),
				TimeLeft(m.cert.NotAfter.Sub(now)))
			if m.cert.IsCA {
				f.Fix = rotateCA
			}
			out = append(out, f)
		}
	}
	return out
}

func checkUnusualNames(t *target) []catalogue.Finding {
	var out []catalogue.Finding
	odd := func(kind, name string) { out = append(out, found("%s %q", kind, name)...) }
	if !t.purpose.leaf() {
		return nil
	}
	for _, name := range t.leaf.DNSNames {
		if _, err := netip.ParseAddr(name); err == nil || !certs.IsHostName(strings.TrimPrefix(name, "*.")) {
			odd("DNS name", name)
		}
	}
	for _, uri := range t.leaf.URIs {
		odd("URI", uri.String())
	}
	for _, address := range t.leaf.EmailAddresses {
		odd("email address", address)
	}
	return out
}

func checkKeyMatches(t *target) []catalogue.Finding {
	if t.key == nil || t.key.Key == nil || certs.SamePublicKey(t.leaf.PublicKey, t.key.Key.Public()) {
		return nil
	}
	return found("the key in %s does not match the certificate", t.key.path)
}

func checkKeyStrength(t *target) []catalogue.Finding {
	var out []catalogue.Finding
	for _, m := range t.members() {
		severity := catalogue.Error
		if _, ok := m.cert.PublicKey.(ed25519.PublicKey); ok {
			severity = catalogue.Warning // strong, but not accepted everywhere
		}
		if reason := certs.WeakKey(m.cert.PublicKey); reason != "" {
			out = append(out, m.found(severity, "key: %s", reason))
		}
	}
	return out
}

var oldAlgorithms = []x509.SignatureAlgorithm{
	x509.MD2WithRSA, x509.MD5WithRSA, x509.SHA1WithRSA, x509.DSAWithSHA1, x509.ECDSAWithSHA1,
}

func checkSignatureAlgorithm(t *target) []catalogue.Finding {
	var out []catalogue.Finding
	for _, m := range t.members() {
		if !slices.Contains(oldAlgorithms, m.cert.SignatureAlgorithm) {
			continue
		}
		severity := catalogue.Error
		if m.cert.IsCA && m.cert.Issuer.String() == m.cert.Subject.String() {
			severity = catalogue.Warning
		}
		out = append(out, m.found(severity, "signed with %s", m.cert.SignatureAlgorithm))
	}
	return out
}

func checkLeafIsCA(t *target) []catalogue.Finding {
	if t.purpose.leaf() && t.leaf.IsCA {
		return found("basic constraints CA:TRUE on a certificate for %s", t.purpose)
	}
	return nil
}

// checkAuthority checks all certificates that must be CAs. A leaf that its own ca.crt trusts
// directly need not be a CA.
func checkAuthority(t *target) []catalogue.Finding {
	var out []catalogue.Finding
	for _, m := range t.members() {
		if m.cert.Equal(t.leaf) && t.purpose != Authority {
			continue
		}
		if reason := certs.CAProblem(m.cert); reason != "" {
			out = append(out, m.found(catalogue.Error, "%s", reason))
		}
	}
	return out
}
