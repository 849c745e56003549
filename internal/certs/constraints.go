// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/x509"
	"encoding/asn1"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
)

var oidNameConstraints = asn1.ObjectIdentifier{2, 5, 29, 30}

// nameConstraints limits the names that a serving CA can vouch for (RFC 5280 section 4.2.1.10). Constraints hold per
// kind of name: permitted DNS names alone would leave every IP address allowed, so either the addresses are listed
// as well or all of them are excluded.
type nameConstraints struct {
	dns []string     // each allows itself and all below it
	ips []netip.Addr // single addresses; none means that all are excluded
}

// newConstraints permits exactly the given names. A wildcard needs the name that it stands below.
func newConstraints(dnsNames []string, ips []netip.Addr) *nameConstraints {
	c := &nameConstraints{ips: ips}
	for _, name := range dnsNames {
		if name = strings.TrimPrefix(name, "*."); !slices.Contains(c.dns, name) {
			c.dns = append(c.dns, name)
		}
	}
	return c
}

// String lists the constraints in a fixed order; equal constraints give equal text.
func (c *nameConstraints) String() string {
	if c == nil {
		return "none"
	}
	permitted, excluded := c.ranges()
	return describeConstraints(c.dns, permitted, nil, excluded)
}

func describeConstraints(permittedDNS []string, permittedIPs []*net.IPNet, excludedDNS []string, excludedIPs []*net.IPNet) string {
	var parts []string
	for _, p := range []struct {
		what  string
		names []string
	}{
		{"permitted DNS", permittedDNS},
		{"permitted IP", toStrings(permittedIPs)},
		{"excluded DNS", excludedDNS},
		{"excluded IP", toStrings(excludedIPs)},
	} {
		if len(p.names) > 0 {
			parts = append(parts, p.what+" "+strings.Join(sorted(p.names), ", "))
		}
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, "; ")
}

// constraintsOf describes a certificate's name constraints in the words of nameConstraints.String.
func constraintsOf(cert *x509.Certificate) string {
	s := describeConstraints(cert.PermittedDNSDomains, cert.PermittedIPRanges, cert.ExcludedDNSDomains, cert.ExcludedIPRanges)
	other := slices.Concat(cert.PermittedEmailAddresses, cert.ExcludedEmailAddresses, cert.PermittedURIDomains, cert.ExcludedURIDomains)
	if len(other) > 0 {
		s += fmt.Sprintf("; email and URI %q", other)
	}
	return s
}

func (c *nameConstraints) ranges() (permitted, excluded []*net.IPNet) {
	if len(c.ips) == 0 {
		for _, all := range []string{"0.0.0.0/0", "::/0"} {
			_, n, _ := net.ParseCIDR(all)
			excluded = append(excluded, n)
		}
	}
	for _, ip := range c.ips {
		permitted = append(permitted, &net.IPNet{IP: ip.AsSlice(), Mask: net.CIDRMask(ip.BitLen(), ip.BitLen())})
	}
	return permitted, excluded
}

// generalSubtree is RFC 5280's GeneralSubtree with minimum and maximum left out, as the RFC demands.
type generalSubtree struct{ Base asn1.RawValue }

// marshal encodes the extension's value. crypto/x509 encodes it only inside CreateCertificate, and cfssl's profiles
// know nothing of it, so it is passed to cfssl as an extension in DER.
func (c *nameConstraints) marshal() ([]byte, error) {
	const tagDNSName, tagIPAddress = 2, 7 // GeneralName, RFC 5280 section 4.2.1.6
	subtree := func(tag int, value []byte) generalSubtree {
		return generalSubtree{asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: tag, Bytes: value}}
	}
	var ext struct {
		Permitted []generalSubtree `asn1:"optional,omitempty,tag:0"`
		Excluded  []generalSubtree `asn1:"optional,omitempty,tag:1"`
	}
	permitted, excluded := c.ranges()
	for _, name := range c.dns {
		ext.Permitted = append(ext.Permitted, subtree(tagDNSName, []byte(name)))
	}
	for _, n := range permitted {
		ext.Permitted = append(ext.Permitted, subtree(tagIPAddress, slices.Concat([]byte(n.IP), n.Mask)))
	}
	for _, n := range excluded {
		ext.Excluded = append(ext.Excluded, subtree(tagIPAddress, slices.Concat([]byte(n.IP), n.Mask)))
	}
	der, err := asn1.Marshal(ext)
	if err != nil {
		return nil, fmt.Errorf("encode name constraints: %w", err)
	}
	return der, nil
}

// forbidden lists those names and addresses that ca's constraints do not allow, so that a refusal can name them all.
// crypto/x509 has the last word when the issued certificate is verified.
func forbidden(ca *x509.Certificate, dnsNames []string, ips []netip.Addr) []string {
	below := func(name string, domains []string) bool {
		return slices.ContainsFunc(domains, func(d string) bool {
			return d == "" || name == d || strings.HasSuffix(name, "."+strings.TrimPrefix(d, "."))
		})
	}
	inside := func(ip netip.Addr, ranges []*net.IPNet) bool {
		return slices.ContainsFunc(ranges, func(n *net.IPNet) bool { return n.Contains(ip.AsSlice()) })
	}
	var out []string
	for _, name := range dnsNames {
		host := strings.TrimPrefix(name, "*.")
		if len(ca.PermittedDNSDomains) > 0 && !below(host, ca.PermittedDNSDomains) || below(host, ca.ExcludedDNSDomains) {
			out = append(out, name)
		}
	}
	for _, ip := range ips {
		if len(ca.PermittedIPRanges) > 0 && !inside(ip, ca.PermittedIPRanges) || inside(ip, ca.ExcludedIPRanges) {
			out = append(out, ip.String())
		}
	}
	return out
}
