// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"cmp"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"time"
)

const (
	// CALifetime equals cfssl's default for a CA and is half of kubeadm's.
	CALifetime = 5 * 365 * 24 * time.Hour
	// LeafLifetime is cert-manager's default. It leaves weeks to repair a broken renewal.
	LeafLifetime = 90 * 24 * time.Hour
	// MaxLeafLifetime is the longest lifetime that browsers accept (CA/Browser Forum ballot
	// SC-22).
	MaxLeafLifetime = 398 * 24 * time.Hour

	// backdate makes a new certificate valid on machines whose clocks are behind. client-go's
	// cert utilities backdate by 1 h too.
	backdate = time.Hour
)

// CAOptions describes a new certificate authority.
type CAOptions struct {
	// Name is the prefix of the common name. A suffix makes the common name unique for each
	// generation, because two CAs with the same subject and different keys confuse clients that
	// look up issuers by subject.
	Name string
	// Usage is the extended key usage of the CA's leaves: x509.ExtKeyUsageServerAuth or
	// x509.ExtKeyUsageClientAuth. Verifiers apply it to the whole chain, so nobody accepts a
	// client certificate that a serving CA signed.
	Usage x509.ExtKeyUsage
	// MutualTLS adds the other of the two usages, for a CA that signs both ends of a connection,
	// as konnectivity requires. Each leaf still has a single usage.
	MutualTLS bool
	// PermittedDNS and PermittedIPs limit the names in a serving CA's leaves. If only
	// PermittedDNS is set, all IP addresses are excluded. If both are empty, names are not
	// limited.
	PermittedDNS, PermittedIPs []string
	// Lifetime starts now; 0 means CALifetime.
	Lifetime time.Duration
	KeyType  KeyType // empty means ECDSAP256
	// Now returns the current time; nil means time.Now. The CA uses it for the leaves that it
	// issues.
	Now func() time.Time
}

// CA signs leaves. Its certificate is limited to its leaves' extended key usages and path length
// 0. A serving CA is also limited to the names in its options, if any.
type CA struct {
	KeyPair
	remote *RemoteSigner // holds the key if KeyPair has none
	now    func() time.Time
}

// NewCA generates a key and a self-signed CA certificate. For invalid options, it returns all
// *InvalidErrors joined.
func NewCA(opts CAOptions) (*CA, error) {
	now := clock(opts.Now)
	s, err := opts.spec(now().Truncate(time.Second))
	if err != nil {
		return nil, err
	}
	key, err := newKey(s.keyType)
	if err != nil {
		return nil, err
	}
	request, err := newRequest(s, key)
	if err != nil {
		return nil, err
	}
	cert, err := sign(s, request, KeyPair{Key: key})
	if err != nil {
		return nil, fmt.Errorf("create CA %s: %w", opts.Name, err)
	}
	pair, err := newKeyPair(cert, key)
	if err != nil {
		return nil, err
	}
	return &CA{KeyPair: *pair, now: now}, nil
}

// ParseCA parses a CA's certificate and key. It returns an error unless they match, the
// certificate is a CA, and it is valid at now (nil means time.Now).
func ParseCA(certPEM, keyPEM []byte, now func() time.Time) (*CA, error) {
	pair, err := ParseKeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, err
	}
	ca := &CA{KeyPair: *pair, now: clock(now)}
	return ca, ca.mayIssue(x509.ExtKeyUsageAny, ca.now())
}

func (o CAOptions) spec(now time.Time) (spec, error) {
	errs := []error{Require("name", o.Name, "the CA's name, such as widgets-serving-ca")}
	if o.Usage != x509.ExtKeyUsageServerAuth && o.Usage != x509.ExtKeyUsageClientAuth {
		errs = append(errs, &InvalidError{"usage", fmt.Sprint(o.Usage),
			"expected serverAuth or clientAuth; create one CA for each"})
	}
	dns, err := parseAll("permitted-dns", o.PermittedDNS, normalizeDNSName)
	errs = append(errs, err)
	ips, err := parseAll("permitted-ip", o.PermittedIPs, parseIP)
	errs = append(errs, err)
	if len(ips) > 0 && len(dns) == 0 {
		errs = append(errs, &InvalidError{"permitted-ip", strings.Join(o.PermittedIPs, ","),
			"expected permitted DNS names as well; IP constraints alone permit every DNS name"})
	}
	if len(dns) > 0 && o.Usage == x509.ExtKeyUsageClientAuth {
		// A constraint on directory names would not help: Go rejects it as an unknown critical
		// extension.
		errs = append(errs, &InvalidError{"permitted-dns", strings.Join(dns, ","),
			"expected none for a client CA; DNS constraints do not apply to user names"})
	}
	errs = append(errs, ValidateLeaf(o.Lifetime, o.KeyType, true)) // a CA may outlive MaxLeafLifetime
	if err := errors.Join(errs...); err != nil {
		return spec{}, err
	}
	s := spec{
		commonName: generationName(o.Name, now), isCA: true, usage: o.Usage, mutual: o.MutualTLS, keyType: o.KeyType,
		notBefore: now.Add(-backdate), notAfter: now.Add(cmp.Or(o.Lifetime, CALifetime)),
	}
	if len(dns) > 0 {
		s.constraints = newConstraints(dns, ips)
	}
	return s, nil
}

// maxCommonName is ub-common-name in RFC 5280 appendix A.1. Go does not enforce it, but other
// implementations do.
const maxCommonName = 64

// generationName returns a unique common name that contains the CA's creation time.
func generationName(name string, now time.Time) string {
	id := make([]byte, 4)
	_, _ = rand.Read(id) // never fails (crypto/rand)
	suffix := fmt.Sprintf("@%d-%x", now.Unix(), id)
	return name[:min(len(name), maxCommonName-len(suffix))] + suffix
}

// ValidateLeaf returns an *InvalidError for each problem with the lifetime and key type of new
// leaves, joined by errors.Join. A lifetime of 0 and an empty key type select the defaults.
// allowLongLived permits a lifetime above MaxLeafLifetime; callers always set it for a CA.
func ValidateLeaf(lifetime time.Duration, keyType KeyType, allowLongLived bool) error {
	var err error
	if lifetime != 0 && lifetime < time.Second {
		err = &InvalidError{"lifetime", lifetime.String(), "expected at least one second"}
	}
	if !allowLongLived && lifetime > MaxLeafLifetime {
		err = &InvalidError{"lifetime", lifetime.String(),
			fmt.Sprintf("expected at most %s (398 days), the limit of TLS clients; "+
				"use a shorter lifetime, or allow it with --allow-long-lived", MaxLeafLifetime)}
	}
	return errors.Join(err, keyType.validate())
}

func clock(now func() time.Time) func() time.Time {
	if now == nil {
		return time.Now
	}
	return now
}
