// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"cmp"
	"errors"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// DefaultClusterDomain is the DNS suffix that kubeadm and kind use for a cluster.
const DefaultClusterDomain = "cluster.local"

const (
	maxNameLength  = 253 // RFC 1123 section 2.1 with RFC 1035 section 2.3.4: 255 octets on the wire
	maxLabelLength = 63  // RFC 1035 section 2.3.4
)

var label = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)

// Service identifies the Kubernetes Service in front of an extension API server.
type Service struct {
	Name          string
	Namespace     string
	ClusterDomain string // empty means DefaultClusterDomain
}

// ServerName returns the name that kube-aggregator expects in the serving certificate. The
// aggregator checks no other name.
func (s Service) ServerName() string {
	return s.Name + "." + s.Namespace + ".svc"
}

// DNSNames returns all names by which cluster DNS resolves the Service. ServerName comes first.
func (s Service) DNSNames() []string {
	return []string{s.ServerName(), s.Name + "." + s.Namespace, s.Name, s.ServerName() + "." +
		cmp.Or(s.ClusterDomain, DefaultClusterDomain)}
}

// Validate returns an *InvalidError for each invalid value, joined.
func (s Service) Validate() error {
	var errs []error
	for _, l := range []struct{ field, value, example string }{
		{"service", s.Name, "widgets"},
		{"namespace", s.Namespace, "demo"},
	} {
		if isLabel(l.value) {
			continue
		}
		reason := "expected an RFC 1123 label (at most 63 of a-z, 0-9 and '-', beginning and ending with a letter " +
			"or digit)"
		if l.value == "" {
			reason += ", found nothing; set it"
		}
		errs = append(errs, &InvalidError{l.field, l.value, reason + ", such as " + l.example})
	}
	if s.ClusterDomain != "" {
		if _, reason := normalizeDNSName(s.ClusterDomain); reason != "" {
			errs = append(errs, &InvalidError{"cluster-domain", s.ClusterDomain, reason})
		} else if strings.HasPrefix(s.ClusterDomain, "*") {
			errs = append(errs, &InvalidError{"cluster-domain", s.ClusterDomain,
				"expected a domain such as cluster.local, found a wildcard"})
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	_, err := parseAll("service", s.DNSNames(), normalizeDNSName)
	return err
}

func isLabel(s string) bool { return len(s) <= maxLabelLength && label.MatchString(s) }

// normalizeDNSName lowercases s and validates it as a host name in a certificate. It returns the
// name and, if it is invalid, the reason.
//
// The checks are strict because cfssl guesses the type of each name: "svc.ns.svc:443" would
// become a URI, and "10.0.0.0/24" a DNS name that no client ever requests.
func normalizeDNSName(s string) (name, reason string) {
	name = strings.ToLower(s)
	host, wildcard := strings.CutPrefix(name, "*.")
	for _, wrong := range []struct {
		is    bool
		found string
	}{
		{name == "", "an empty value; remove it"},
		{strings.Contains(name, "://"), "a URL; remove the scheme and everything after the host name"},
		{isAddress(name), "an IP address; use --ip instead"},
		{strings.Contains(name, "/"), "a path or an address range; name each host"},
		{strings.Contains(name, ":"),
			"':'; remove the port, and use --ip for an IPv6 address, without brackets"},
		{strings.HasSuffix(name, "."), "a trailing dot; remove it"},
		{len(name) > maxNameLength, "more than 253 characters; shorten it"},
		{strings.Trim(name, "0123456789.") == "",
			"only digits and dots, which clients parse as an IP address; use a name with a letter"},
		// RFC 6125 section 7.2: a wildcard directly below a top-level domain covers names of
		// other owners.
		{wildcard && !strings.Contains(host, "."), "a wildcard over a single label; use at least *.name.domain"},
		{!IsHostName(host), "a part that is not an RFC 1123 label (at most 63 of a-z, 0-9 and '-'); encode other " +
			"alphabets as xn--"},
	} {
		if wrong.is {
			return "", "expected a DNS name such as widgets.demo.svc, found " + wrong.found
		}
	}
	return name, ""
}

// IsHostName reports whether s consists of lower-case RFC 1123 labels separated by dots.
func IsHostName(s string) bool {
	for l := range strings.SplitSeq(s, ".") {
		if !isLabel(l) {
			return false
		}
	}
	return true
}

func isAddress(s string) bool {
	_, err := netip.ParseAddr(s)
	return err == nil
}

// parseAll parses values and removes duplicates. parse returns the reason why a value is
// invalid, or "". parseAll returns an *InvalidError for each invalid value, joined.
func parseAll(field string, values []string, parse func(string) (string, string)) ([]string, error) {
	var out []string
	var errs []error
	for _, s := range values {
		value, reason := parse(s)
		if reason != "" {
			errs = append(errs, &InvalidError{field, s, reason})
		} else if !slices.Contains(out, value) {
			out = append(out, value)
		}
	}
	return out, errors.Join(errs...)
}

// parseIP returns the address in the format of net.IP and, if it is invalid, the reason.
func parseIP(s string) (address, reason string) {
	const want = "expected an IP address such as 10.0.0.1 or fd00::1"
	ip, err := netip.ParseAddr(s)
	switch {
	case err != nil:
		reason = want + "; remove port, brackets and prefix length, and use --dns for host names"
	case ip.Zone() != "":
		reason = want + ", found a zone, which certificates cannot contain; remove it"
	case ip.Unmap().IsUnspecified():
		reason = want + ", found the unspecified address; use the address to which clients connect"
	}
	return ip.Unmap().String(), reason
}
