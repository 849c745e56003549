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
	// CALifetime is as long as cfssl's default for a CA, half of kubeadm's.
	CALifetime = 5 * 365 * 24 * time.Hour
	// LeafLifetime is cert-manager's default: long enough to survive a broken renewal for weeks.
	LeafLifetime = 90 * 24 * time.Hour
	// MaxLeafLifetime is the longest that TLS clients of browsers accept (CA/Browser Forum ballot SC-22).
	MaxLeafLifetime = 398 * 24 * time.Hour

	// backdate lets a new certificate be used by machines whose clock is late; certutil of client-go takes 1 h too.
	backdate = time.Hour
)

// CAOptions describe a new certificate authority.
type CAOptions struct {
	// Name begins the common name, which is made unique for each generation: two CAs with one subject and two keys
	// confuse clients that look up issuers by subject.
	Name string
	// Usage is what the CA's leaves may be used for: x509.ExtKeyUsageServerAuth or x509.ExtKeyUsageClientAuth.
	// Verifiers apply it to the whole chain, so a serving CA cannot make a client certificate that anyone accepts.
	Usage x509.ExtKeyUsage
	// MutualTLS adds the other of the two usages, for a CA that both ends of a connection come from, as konnectivity
	// wants it. Each leaf still has one.
	MutualTLS bool
	// PermittedDNS and PermittedIPs limit the names of a serving CA's leaves; with PermittedDNS alone, IP addresses
	// are excluded altogether. Both empty means no limit.
	PermittedDNS, PermittedIPs []string
	// Lifetime counts from now; 0 means CALifetime.
	Lifetime time.Duration
	KeyType  KeyType // empty means ECDSAP256
	// Now is the clock; nil means time.Now. The CA keeps it for the leaves that it issues.
	Now func() time.Time
}

// CA signs leaves. It has the least power that its leaves need: their extended key usages, no CAs below it, and for a
// serving CA only the names that it was made for, if they were given.
type CA struct {
	KeyPair
	remote *RemoteSigner // has the key, where there is none
	now    func() time.Time
}

// NewCA makes a key and a self-signed CA. Wrong options give *InvalidError, all at once.
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

// ParseCA reads a CA that may sign at now (nil means time.Now): certificate and key match, it is a CA, and its
// validity has begun and not ended.
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
		// The same constraint on a directory name would be no help: Go refuses it as an unknown critical extension.
		errs = append(errs, &InvalidError{"permitted-dns", strings.Join(dns, ","),
			"expected none for a client CA; DNS constraints do not apply to user names"})
	}
	errs = append(errs, ValidateLeaf(o.Lifetime, o.KeyType, true)) // a CA may last longer than a leaf
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

// maxCommonName is ub-common-name of RFC 5280 appendix A.1. Go does not enforce it, others do.
const maxCommonName = 64

// generationName is unique and shows when the CA was made.
func generationName(name string, now time.Time) string {
	id := make([]byte, 4)
	_, _ = rand.Read(id) // never fails (crypto/rand)
	suffix := fmt.Sprintf("@%d-%x", now.Unix(), id)
	return name[:min(len(name), maxCommonName-len(suffix))] + suffix
}

// ValidateLeaf returns what is wrong with the lifetime and the key type of new leaves, as *InvalidError joined by
// errors.Join. 0 and empty are the defaults. A lifetime above MaxLeafLifetime must be allowed, as it always is for a
// CA.
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
