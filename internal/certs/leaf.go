// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// FrontProxyUser is the common name that kubeadm gives the aggregator's client certificate.
// kube-apiserver's --requestheader-allowed-names must contain it.
const FrontProxyUser = "front-proxy-client"

// systemMasters is the group whose members kube-apiserver allows everything without consulting
// any authorizer.
const systemMasters = "system:masters"

// ServingOptions describes a server's certificate. DNS names and IP addresses are separate and
// never guessed.
type ServingOptions struct {
	DNSNames []string      // RFC 1123, or *.name.domain; the first of at most 64 characters is the common name
	IPs      []string      // without port and prefix length
	Lifetime time.Duration // from now, at most MaxLeafLifetime; 0 means LeafLifetime
	// AllowLongLived allows a Lifetime above MaxLeafLifetime. The certificate still expires no
	// later than its CA.
	AllowLongLived bool
	KeyType        KeyType // empty means ECDSAP256
}

// ClientOptions describes a client's certificate. Kubernetes uses User and Groups as the
// identity of the request.
type ClientOptions struct {
	User               string
	Groups             []string
	AllowSystemMasters bool          // allow the group system:masters, which no authorizer can limit or revoke
	Lifetime           time.Duration // from now, at most MaxLeafLifetime; 0 means LeafLifetime
	AllowLongLived     bool          // allow a Lifetime above MaxLeafLifetime
	KeyType            KeyType       // empty means ECDSAP256
}

// IssueServing generates a key and issues a certificate for server authentication only. The
// certificate expires no later than the CA. For invalid options, or names that the CA's
// constraints do not permit, it returns all *InvalidErrors joined.
func (ca *CA) IssueServing(opts ServingOptions) (*KeyPair, error) {
	s, err := opts.spec()
	if err != nil {
		return nil, err
	}
	return ca.issue(s)
}

// IssueClient generates a key and issues a certificate for client authentication only. The
// certificate expires no later than the CA. For invalid options, it returns all *InvalidErrors
// joined.
func (ca *CA) IssueClient(opts ClientOptions) (*KeyPair, error) {
	s, err := opts.spec()
	if err != nil {
		return nil, err
	}
	return ca.issue(s)
}

func (o ServingOptions) spec() (spec, error) { return o.specFor("dns", "ip") }

// specFor returns the spec. Errors refer to the names by the given option fields.
func (o ServingOptions) specFor(dnsField, ipField string) (spec, error) {
	dns, dnsErr := parseAll(dnsField, o.DNSNames, normalizeDNSName)
	ips, ipErr := parseAll(ipField, o.IPs, parseIP)
	if err := errors.Join(dnsErr, ipErr, ValidateLeaf(o.Lifetime, o.KeyType, o.AllowLongLived)); err != nil {
		return spec{}, err
	}
	if len(dns)+len(ips) == 0 {
		// A common name is not enough: clients no longer read it.
		return spec{}, &InvalidError{dnsField, "",
			"expected at least one DNS name or IP address; clients verify nothing else"}
	}
	return spec{
		commonName: servingCommonName(slices.Concat(dns, ips)), dnsNames: dns, ips: ips,
		usage:    x509.ExtKeyUsageServerAuth,
		lifetime: cmp.Or(o.Lifetime, LeafLifetime), keyType: o.KeyType,
	}, nil
}

// servingCommonName returns a common name for people to read. The longest form of a Service's
// name has up to 131 characters, which exceeds the limit.
func servingCommonName(names []string) string {
	for _, name := range names {
		if len(name) <= maxCommonName {
			return name
		}
	}
	return names[0][:maxLabelLength]
}

// Validate returns an *InvalidError for each invalid value, joined.
func (o ClientOptions) Validate() error {
	_, err := o.spec()
	return err
}

func (o ClientOptions) spec() (spec, error) {
	var userErr error
	if reason := checkSubject(o.User); reason != "" {
		userErr = &InvalidError{"user", o.User, reason}
	} else if len(o.User) > maxCommonName {
		userErr = &InvalidError{"user", o.User, "expected at most 64 characters (RFC 5280), found more; shorten it"}
	}
	groups, groupErr := parseAll("group", o.Groups, func(group string) (string, string) {
		if group == systemMasters && !o.AllowSystemMasters {
			return group, "expected a group whose permissions can be limited and revoked; " +
				"bind another group to a role, or allow it explicitly with --allow-system-masters"
		}
		return group, checkSubject(group)
	})
	if err := errors.Join(userErr, groupErr, ValidateLeaf(o.Lifetime, o.KeyType, o.AllowLongLived)); err != nil {
		return spec{}, err
	}
	return spec{commonName: o.User, groups: groups, usage: x509.ExtKeyUsageClientAuth,
		lifetime: cmp.Or(o.Lifetime, LeafLifetime), keyType: o.KeyType}, nil
}

// checkSubject returns the reason why s is invalid in a subject, or "".
func checkSubject(s string) string {
	switch {
	case s == "":
		return "expected a name, found nothing"
	case strings.TrimSpace(s) != s || strings.ContainsFunc(s,
		func(r rune) bool { return r < ' ' || r == 0x7f || r == '\uFFFD' }):
		return "expected a name without control characters and without space at its ends"
	}
	return ""
}

// issue generates a key, signs it, and verifies the result as a client or server will.
func (ca *CA) issue(s spec) (*KeyPair, error) {
	key, err := newKey(s.keyType)
	if err != nil {
		return nil, err
	}
	request, err := newRequest(s, key)
	if err != nil {
		return nil, err
	}
	cert, err := ca.signRequest(s, request)
	if err != nil {
		return nil, err
	}
	return newKeyPair(cert, key)
}

// signRequest signs the key in the request and takes all other properties from s.
func (ca *CA) signRequest(s spec, request *x509.CertificateRequest) (*x509.Certificate, error) {
	now := ca.now().Truncate(time.Second)
	errs := []error{ca.mayIssue(s.usage, now)}
	for _, name := range forbidden(ca.Certificate, s.dnsNames, s.ips) {
		errs = append(errs, &InvalidError{"name", name, "expected a name that the CA permits (" +
			constraintsOf(ca.Certificate) + "); remove it, or issue a CA that permits it"})
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	// A leaf that outlives its CA looks valid in every listing but fails every verification.
	s.notBefore, s.notAfter = now.Add(-backdate), now.Add(s.lifetime)
	if ca.Certificate.NotBefore.After(s.notBefore) {
		s.notBefore = ca.Certificate.NotBefore
	}
	if ca.Certificate.NotAfter.Before(s.notAfter) {
		s.notAfter = ca.Certificate.NotAfter
	}
	var cert *x509.Certificate
	var err error
	if ca.remote != nil {
		cert, err = ca.remote.sign(s, request, ca.Certificate, now)
	} else {
		cert, err = sign(s, request, ca.KeyPair)
	}
	if err != nil {
		return nil, fmt.Errorf("issue certificate for %s: %w", s.commonName, err)
	}
	if err := s.verify(cert, Bundle{ca.Certificate}, now); err != nil {
		return nil, fmt.Errorf("verify certificate for %s: %w", s.commonName, err)
	}
	return cert, nil
}

// verify verifies cert as its peers will. kube-aggregator requires server authentication and one
// DNS name; the request-header authenticator requires client authentication.
func (s spec) verify(cert *x509.Certificate, roots Bundle, now time.Time) error {
	opts := x509.VerifyOptions{Roots: roots.Pool(), CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{s.usage}}
	if _, err := cert.Verify(opts); err != nil {
		return err
	}
	for _, name := range slices.Concat(s.dnsNames, s.ips) {
		// A wildcard is not a host name; check a host below it.
		if err := cert.VerifyHostname(strings.Replace(name, "*", "any", 1)); err != nil {
			return err
		}
	}
	return nil
}

// mayIssue returns an error if the CA must not sign a leaf for usage at now. ExtKeyUsageAny
// accepts any usage.
func (ca *CA) mayIssue(usage x509.ExtKeyUsage, now time.Time) error {
	if reason := unusableCA(ca.Certificate, usage, now); reason != "" {
		return fmt.Errorf("use CA %s: %s", ca.Certificate.Subject.CommonName, reason)
	}
	return nil
}

// unusableCA returns the reason why cert cannot issue leaves for usage, or "".
func unusableCA(cert *x509.Certificate, usage x509.ExtKeyUsage, now time.Time) string {
	reason := CAProblem(cert)
	switch {
	case reason != "":
		return "expected a CA certificate, found one that " + reason
	case usage != x509.ExtKeyUsageAny && !Permits(cert, usage):
		return fmt.Sprintf("expected a CA for %s, found one for %s", extKeyUsageNames([]x509.ExtKeyUsage{usage}, nil),
			extKeyUsageNames(cert.ExtKeyUsage, cert.UnknownExtKeyUsage))
	case now.Before(cert.NotBefore):
		return fmt.Sprintf("not valid before %s; check the clock of this machine (%s)", timeText(cert.NotBefore),
			timeText(now))
	case now.After(cert.NotAfter):
		return "expired at " + timeText(cert.NotAfter)
	}
	return ""
}

// CAProblem returns the reason why cert cannot sign certificates, or "".
func CAProblem(cert *x509.Certificate) string {
	switch {
	case !cert.BasicConstraintsValid || !cert.IsCA:
		return "is not a CA (basic constraints CA:FALSE)"
	case cert.KeyUsage != 0 && cert.KeyUsage&x509.KeyUsageCertSign == 0:
		return "cannot sign certificates (no key usage keyCertSign)"
	}
	return ""
}

// Permits reports whether cert permits usage. As in crypto/x509, a certificate without extended
// key usages permits all of them.
func Permits(cert *x509.Certificate, usage x509.ExtKeyUsage) bool {
	return len(cert.ExtKeyUsage)+len(cert.UnknownExtKeyUsage) == 0 ||
		slices.Contains(cert.ExtKeyUsage, usage) || slices.Contains(cert.ExtKeyUsage, x509.ExtKeyUsageAny)
}

func timeText(t time.Time) string { return t.UTC().Format(time.RFC3339) }
