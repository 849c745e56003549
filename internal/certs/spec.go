// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"math/big"
	"net"
	"slices"
	"strings"
	"time"
)

// spec describes a certificate. The same definition is the input for the signer, the reference
// for checking the result, and the reference for checking a certificate found on disk.
type spec struct {
	commonName  string
	groups      []string // subject O
	dnsNames    []string
	ips         []string // in the format of net.IP: IPv4 is never mapped into IPv6
	isCA        bool     // always with path length 0
	mutual      bool     // of a CA: it has the other of the two usages as well
	usage       x509.ExtKeyUsage
	constraints *x509.Certificate // of a CA, see newConstraints; nil allows every name

	// lifetime and keyType apply to new certificates. An existing certificate may have other
	// values if its key is strong enough.
	lifetime            time.Duration
	keyType             KeyType
	notBefore, notAfter time.Time // set from lifetime at signing time
}

// extKeyUsages returns the extended key usages. A leaf always has exactly one: with a
// certificate for both servers and clients, a thief of the server's key could act as a client,
// and vice versa.
func (s spec) extKeyUsages() []x509.ExtKeyUsage {
	if s.isCA && s.mutual {
		return []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	}
	return []x509.ExtKeyUsage{s.usage}
}

// keyUsage returns the key usages: for a CA those that RFC 5280 section 4.2.1.3 requires, for a
// TLS leaf digital signatures only. RFC 8813 section 3 forbids keyEncipherment with an EC key,
// although kubeadm and cfssl's default profile set it. An RSA leaf that was issued elsewhere may
// have it. Ours does not: only RSA key exchange needs it, and TLS 1.3 and Go's servers no longer
// offer that.
func (s spec) keyUsage() x509.KeyUsage {
	if s.isCA {
		return x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	}
	return x509.KeyUsageDigitalSignature
}

// mismatches returns the differences between cert and s, except for times, as readable text.
func (s spec) mismatches(cert *x509.Certificate) []string {
	usages := extKeyUsageNames(cert.ExtKeyUsage, cert.UnknownExtKeyUsage)
	out := s.purposeMismatches(cert.Subject.CommonName, cert.Subject.Organization, cert.DNSNames,
		toStrings(cert.IPAddresses), usages)
	differ := func(what string, want, got any) { out = append(out, mismatch(what, want, got)...) }
	differ("number of subject attributes", 1+len(s.groups), len(cert.Subject.Names))
	differ("email addresses", []string{}, cert.EmailAddresses)
	differ("URIs", []string{}, cert.URIs)

	usage := s.keyUsage()
	if _, ec := cert.PublicKey.(*ecdsa.PublicKey); !ec && !s.isCA && cert.KeyUsage&x509.KeyUsageKeyEncipherment != 0 {
		usage |= x509.KeyUsageKeyEncipherment
	}
	differ("key usages", keyUsageNames(usage), keyUsageNames(cert.KeyUsage))

	differ("basic constraints", true, cert.BasicConstraintsValid)
	differ("CA", s.isCA, cert.IsCA)
	if s.isCA {
		differ("path length", 0, cert.MaxPathLen)
	}
	differ("name constraints", constraintsOf(s.constraints), constraintsOf(cert))
	differ("critical name constraints", s.constraints != nil, cert.PermittedDNSDomainsCritical)
	differ("unexpected extensions", []string{}, s.unexpectedExtensions(cert))
	return out
}

// purposeMismatches returns the differences between s and the names and usages of a certificate
// or certificate request.
func (s spec) purposeMismatches(commonName string, groups, dnsNames, ips, usages []string) []string {
	return slices.Concat(
		mismatch("common name", s.commonName, commonName),
		mismatch("organizations", sorted(s.groups), sorted(groups)),
		mismatch("DNS names", sorted(s.dnsNames), sorted(dnsNames)),
		mismatch("IP addresses", sorted(s.ips), sorted(ips)),
		mismatch("extended key usages", extKeyUsageNames(s.extKeyUsages(), nil), usages),
	)
}

// mismatch returns one line if the values differ, otherwise nil.
func mismatch(what string, want, got any) []string {
	if w, g := fmt.Sprint(want), fmt.Sprint(got); w != g {
		return []string{fmt.Sprintf("%s: expected %s, found %s", what, w, g)}
	}
	return nil
}

// unexpectedExtensions returns extensions that a CSR or a profile's default may have added.
func (s spec) unexpectedExtensions(cert *x509.Certificate) []string {
	known := []string{
		"2.5.29.14", // subject key identifier
		"2.5.29.15", // key usage
		"2.5.29.19", // basic constraints
		"2.5.29.35", // authority key identifier
		"2.5.29.37", // extended key usage
	}
	if len(s.dnsNames)+len(s.ips) > 0 {
		known = append(known, "2.5.29.17") // subject alternative name
	}
	if s.constraints != nil {
		known = append(known, oidNameConstraints)
	}
	var found []string
	for _, ext := range cert.Extensions {
		if oid := ext.Id.String(); !slices.Contains(known, oid) {
			found = append(found, oid)
		}
	}
	return found
}

// checkIssued returns an error if a newly signed certificate differs from s or was not signed
// correctly. For a root, issuer is cert itself.
func (s spec) checkIssued(cert, issuer *x509.Certificate, key crypto.PublicKey) error {
	out := s.mismatches(cert)
	bad := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }

	if !cert.NotBefore.Equal(s.notBefore) || !cert.NotAfter.Equal(s.notAfter) {
		bad("validity: expected %s to %s, found %s to %s", s.notBefore, s.notAfter, cert.NotBefore, cert.NotAfter)
	}
	if cert.NotAfter.After(issuer.NotAfter) {
		bad("validity: expires at %s, after its CA at %s", cert.NotAfter, issuer.NotAfter)
	}
	if !SamePublicKey(cert.PublicKey, key) {
		bad("public key: not the requested key")
	}
	if err := checkSerial(cert.SerialNumber); err != "" {
		bad("%s", err)
	}
	// RFC 5280 section 4.2.1.1: it must equal the issuer's subject key identifier; a self-signed
	// certificate may omit it.
	if aki := hex.EncodeToString(cert.AuthorityKeyId); aki != hex.EncodeToString(issuer.SubjectKeyId) &&
		(aki != "" || cert != issuer) {
		bad("authority key identifier: expected %x, found %s", issuer.SubjectKeyId, aki)
	}
	if len(cert.SubjectKeyId) == 0 {
		bad("subject key identifier: expected one, found none")
	}
	if err := cert.CheckSignatureFrom(issuer); err != nil {
		bad("signature: %v", err)
	}
	if len(out) > 0 {
		return fmt.Errorf("check issued certificate: differences from the request: %q", out)
	}
	return nil
}

// checkSerial enforces RFC 5280 section 4.1.2.2: positive and at most 20 octets in DER,
// including one sign bit.
func checkSerial(serial *big.Int) string {
	if serial.Sign() <= 0 || serial.BitLen() > 20*8-1 {
		return fmt.Sprintf("serial number: expected 1 to 159 bits and positive, found %d bits with sign %d",
			serial.BitLen(), serial.Sign())
	}
	return ""
}

func sorted(in []string) []string {
	return slices.Sorted(slices.Values(in))
}

func toStrings[T fmt.Stringer](in []T) []string {
	out := make([]string, 0, len(in))
	for _, v := range in {
		out = append(out, v.String())
	}
	return out
}

const oidNameConstraints = "2.5.29.30"

// newConstraints returns a template with the name constraints of a serving CA (RFC 5280 section
// 4.2.1.10). They permit the given names and everything below them. Constraints apply per type
// of name. Permitted DNS names alone would allow every IP address, so the addresses are either
// listed or all excluded. For a wildcard, the domain after the "*." is permitted.
func newConstraints(dnsNames, ips []string) *x509.Certificate {
	c := &x509.Certificate{PermittedDNSDomainsCritical: true}
	for _, name := range dnsNames {
		if name = strings.TrimPrefix(name, "*."); !slices.Contains(c.PermittedDNSDomains, name) {
			c.PermittedDNSDomains = append(c.PermittedDNSDomains, name)
		}
	}
	for _, address := range ips {
		ip := net.ParseIP(address)
		if v4 := ip.To4(); v4 != nil {
			ip = v4
		}
		c.PermittedIPRanges = append(c.PermittedIPRanges, &net.IPNet{IP: ip, Mask: net.CIDRMask(8*len(ip), 8*len(ip))})
	}
	if len(ips) == 0 {
		c.ExcludedIPRanges = []*net.IPNet{{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)},
			{IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}}
	}
	return c
}

// constraintsOf describes a certificate's name constraints in a fixed order. Equal constraints
// give equal text.
func constraintsOf(cert *x509.Certificate) string {
	if cert == nil {
		return "none"
	}
	var parts []string
	for _, p := range []struct {
		what  string
		names []string
	}{
		{"permitted DNS", cert.PermittedDNSDomains},
		{"permitted IP", toStrings(cert.PermittedIPRanges)},
		{"excluded DNS", cert.ExcludedDNSDomains},
		{"excluded IP", toStrings(cert.ExcludedIPRanges)},
		{"email and URI", slices.Concat(cert.PermittedEmailAddresses, cert.ExcludedEmailAddresses,
			cert.PermittedURIDomains, cert.ExcludedURIDomains)},
	} {
		if len(p.names) > 0 {
			parts = append(parts, p.what+" "+strings.Join(sorted(p.names), ", "))
		}
	}
	return cmp.Or(strings.Join(parts, "; "), "none")
}

// forbidden returns all names and addresses that ca's constraints do not allow, so that an error
// can list them. The final check is crypto/x509's verification of the issued certificate.
func forbidden(ca *x509.Certificate, dnsNames, ips []string) []string {
	below := func(name string, domains []string) bool {
		return slices.ContainsFunc(domains, func(d string) bool {
			return d == "" || name == d || strings.HasSuffix(name, "."+strings.TrimPrefix(d, "."))
		})
	}
	inside := func(ip string, ranges []*net.IPNet) bool {
		return slices.ContainsFunc(ranges, func(n *net.IPNet) bool { return n.Contains(net.ParseIP(ip)) })
	}
	var out []string
	for _, name := range dnsNames {
		host := strings.TrimPrefix(name, "*.")
		if len(ca.PermittedDNSDomains) > 0 && !below(host, ca.PermittedDNSDomains) ||
			below(host, ca.ExcludedDNSDomains) {
			out = append(out, name)
		}
	}
	for _, ip := range ips {
		if len(ca.PermittedIPRanges) > 0 && !inside(ip, ca.PermittedIPRanges) || inside(ip, ca.ExcludedIPRanges) {
			out = append(out, ip)
		}
	}
	return out
}
