// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
	"time"

	"example.com/extension-apiserver/internal/certs"
)

func found(format string, args ...any) []Finding {
	return []Finding{{Evidence: fmt.Sprintf(format, args...)}}
}

// checkChain reports every refusal of the verifier that no other check explains.
func checkChain(t *target) []Finding {
	if t.unchecked {
		f := found("the chain was not checked: no file holds the CA %q that signed it", t.leaf.Issuer)
		f[0].Severity, f[0].Fix = Info, "give certgen verify the file of the CA too, or put it beside the certificate as "+certs.BundleFile
		return f
	}
	explained := []x509.InvalidReason{x509.Expired, x509.IncompatibleUsage, x509.TooManyIntermediates, x509.CANotAuthorizedForThisName}
	if t.verdict == nil || slices.ContainsFunc(explained, t.refusedFor) {
		return nil
	}
	return found("%v", t.verdict)
}

func checkUsage(t *target) []Finding {
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
		return found("no CA above it allows %s: %s", usage, strings.Join(cas, "; "))
	}
	return nil
}

func usages(cert *x509.Certificate) string {
	return strings.Join(certs.Describe(cert, time.Time{}).ExtKeyUsages, ", ")
}

func checkBothUsages(t *target) []Finding {
	// An empty list allows any as well; it is so common in old certificates that a warning would be noise.
	if t.purpose.leaf() && len(t.leaf.ExtKeyUsage) > 0 && certs.Permits(t.leaf, x509.ExtKeyUsageServerAuth) && certs.Permits(t.leaf, x509.ExtKeyUsageClientAuth) {
		return found("extended key usages %s", usages(t.leaf))
	}
	return nil
}

func checkServerName(t *target) []Finding {
	if t.purpose == Server && known[t.name] == "" {
		f := found("not checked: nothing says which Service the server is behind")
		f[0].Severity, f[0].Fix = Info, "if it is an API server's certificate, add --service NAME --namespace NAMESPACE"
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

func checkOutlivesCA(t *target) []Finding {
	issuers := t.issuers(t.leaf)
	if t.purpose == Authority || len(issuers) == 0 {
		return nil
	}
	longest := slices.MaxFunc(issuers, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) })
	if t.leaf.NotAfter.After(longest.NotAfter) {
		return found("ends %s, its CA %s at %s", timeText(t.leaf.NotAfter), longest.Subject, timeText(longest.NotAfter))
	}
	return nil
}

func checkPathLength(t *target) []Finding {
	if t.refusedFor(x509.TooManyIntermediates) {
		return found("%v", t.verdict)
	}
	return nil
}

func checkNameConstraints(t *target) []Finding {
	if t.refusedFor(x509.CANotAuthorizedForThisName) {
		return found("%v", t.verdict)
	}
	if t.purpose != Serving {
		return nil
	}
	var out []Finding
	for _, ca := range t.issuers(t.leaf) {
		if len(ca.PermittedDNSDomains) == 0 {
			out = append(out, Finding{
				Severity: Info, Evidence: fmt.Sprintf("its CA %s has no name constraints", ca.Subject),
				Fix: "nothing has to be done; a CA that certgen init makes is limited to the Service's names",
			})
		}
	}
	return out
}

func checkAllowedName(t *target) []Finding {
	allowed := t.opts.allowedNames()
	if t.purpose != FrontProxy || len(allowed) == 0 || slices.Contains(allowed, t.leaf.Subject.CommonName) {
		return nil
	}
	return found("common name %q, allowed are %q", t.leaf.Subject.CommonName, allowed)
}

func timeText(t time.Time) string { return t.UTC().Format(time.RFC3339) }
