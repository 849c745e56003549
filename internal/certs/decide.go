// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
	"time"
)

// decideCA decides about the CA, or refuses because it would have to be replaced while it is still trusted.
func (c *chain) decideCA() (decision, *RefusedError) {
	found := &c.ca
	if c.remote != nil && (!found.certSeen || found.keySeen) {
		return decision{}, &RefusedError{Path: found.path(), Reason: fmt.Sprintf("expected the certificate of the CA whose key %s has, and no key; "+
			"put it in %s, or leave --signer out", c.remote.URL, found.file(CertFile))}
	}
	if !found.certSeen && !found.keySeen {
		// Somebody may have taken the whole CA to a safe place. A new one would break what works.
		for _, l := range c.leaves {
			if l.cert != nil && !c.now.After(l.cert.NotAfter) {
				return decision{}, &RefusedError{Path: found.path(), Reason: fmt.Sprintf("expected the CA of %s, which is valid until %s, found none",
					l.file(CertFile), timeText(l.cert.NotAfter))}
			}
		}
		return decision{action: Made, reason: "there was none"}, nil
	}
	if c.remote == nil && found.cert != nil && c.now.After(found.cert.NotAfter) {
		return decision{action: Replaced, reason: "it expired at " + timeText(found.cert.NotAfter)}, nil
	}
	if refusal := c.checkCA(); refusal != nil {
		return decision{}, refusal
	}
	return decision{action: Kept, reason: "it is valid and may sign what is needed", notes: append(found.notes, c.caNotes()...)}, nil
}

// checkCA returns why the CA that was found cannot be used, and nil when it can.
func (c *chain) checkCA() *RefusedError {
	found := &c.ca
	cert, key := found.file(CertFile), found.file(KeyFile)
	switch {
	case !found.certSeen:
		return &RefusedError{Path: cert, Reason: "expected the certificate of the key beside it, found none"}
	case found.certErr != nil:
		return &RefusedError{Path: cert, Reason: found.certErr.Error()}
	case found.keyErr != nil:
		return &RefusedError{Path: key, Reason: found.keyErr.Error()}
	case found.key != nil && !SamePublicKey(found.cert.PublicKey, found.key.Public()):
		return &RefusedError{Path: key, Reason: "expected the key of the certificate beside it, found another"}
	}
	if err := checkStrength(found.cert.PublicKey); err != nil {
		return &RefusedError{Path: cert, Reason: err.Error()}
	}
	for _, l := range c.leaves {
		if reason := unfitFor(found.cert, l.want, c.now); reason != "" {
			return &RefusedError{Path: cert, Reason: reason}
		}
	}
	return nil
}

// caNotes says where a CA that is kept could be better.
func (c *chain) caNotes() []string {
	var d decision
	cert, want := c.ca.cert, c.ca.options.usages()
	if c.remote != nil {
		d.note("its key is with %s", c.remote.URL)
	} else if c.ca.key == nil {
		d.note("its key is not here; its leaves can only be replaced where the key is")
	}
	if c.now.After(RenewAt(cert)) {
		d.note("less than a third of its life is left (until %s): plan its rotation", timeText(cert.NotAfter))
	}
	if len(cert.ExtKeyUsage) != len(want) || slices.ContainsFunc(want, func(u x509.ExtKeyUsage) bool { return !slices.Contains(cert.ExtKeyUsage, u) }) {
		d.note("its extended key usages are %s; %s alone would be enough", extKeyUsageNames(cert.ExtKeyUsage, cert.UnknownExtKeyUsage), extKeyUsageNames(want, nil))
	}
	if len(c.ca.options.PermittedDNS) > 0 && len(cert.PermittedDNSDomains) == 0 {
		d.note("it has no name constraints: with its key a certificate for any host can be made")
	}
	if !c.ca.options.KeyType.matches(cert.PublicKey) {
		d.note("its key is %s; only a new CA would have the type that was asked for", keyType(cert.PublicKey))
	}
	return d.notes
}

// decideLeaves decides about the leaves once it is known what becomes of their CA.
func (c *chain) decideLeaves() {
	for _, l := range c.leaves {
		if l.decision = c.decideLeaf(l); l.decision.action == Replaced && !l.decision.reuse && l.afterwards != "" {
			l.decision.note("%s", l.afterwards)
		}
	}
}

func (c *chain) decideLeaf(l *leaf) decision {
	if !l.certSeen && !l.keySeen {
		return decision{action: Made, reason: "there was none"}
	}
	if c.ca.decision.action != Kept {
		return decision{action: Replaced, reason: "its CA is new"}
	}
	if reason := c.checkLeaf(l); reason != "" {
		return decision{action: Replaced, reason: reason}
	}
	kept := decision{action: Kept, reason: "it is valid and what was asked for", notes: l.notes}
	if c.now.After(RenewAt(l.cert)) {
		if l.cert.NotAfter.Before(c.ca.cert.NotAfter) {
			return decision{action: Replaced, reason: fmt.Sprintf("less than a third of its life was left (until %s)", timeText(l.cert.NotAfter))}
		}
		kept.note("it is due, but a new one would end no later: it ends with its CA")
	}
	if !l.want.keyType.matches(l.cert.PublicKey) {
		kept.note("its key is %s; the next one will have the type that was asked for", keyType(l.cert.PublicKey))
	}
	if !l.bundle.Contains(c.ca.cert) {
		kept.action, kept.reuse = Replaced, true
		kept.reason = BundleFile + " did not hold its CA; certificate and key stay the same"
	}
	return kept
}

// checkLeaf returns why the leaf that was found is not right, or "".
func (c *chain) checkLeaf(l *leaf) string {
	switch {
	case !l.certSeen:
		return CertFile + " was missing"
	case !l.keySeen:
		return KeyFile + " was missing"
	case l.certErr != nil:
		return CertFile + " was damaged: " + l.certErr.Error()
	case l.keyErr != nil:
		return KeyFile + " was damaged: " + l.keyErr.Error()
	case !SamePublicKey(l.cert.PublicKey, l.key.Public()):
		return KeyFile + " was not the key of " + CertFile
	}
	return strings.Join(l.want.wrongWith(l.cert, c.ca.cert, c.now), "; ")
}

// wrongWith lists why cert is not what s asks of a leaf of the CA, for a person to read.
func (s spec) wrongWith(cert, ca *x509.Certificate, now time.Time) []string {
	var out []string
	if cert.CheckSignatureFrom(ca) != nil {
		out = append(out, fmt.Sprintf("it was signed by %s, not by %s", cert.Issuer, ca.Subject))
	}
	if now.After(cert.NotAfter) {
		out = append(out, "it expired at "+timeText(cert.NotAfter))
	}
	out = append(out, s.mismatches(cert)...)
	if err := s.verify(cert, Bundle{ca}, now); err != nil && len(out) == 0 {
		out = append(out, "it did not verify: "+err.Error())
	}
	return out
}

// unfitFor returns why the CA cannot sign what s asks for, or "".
func unfitFor(ca *x509.Certificate, s spec, now time.Time) string {
	if reason := unusableCA(ca, s.usage, now); reason != "" {
		return reason
	}
	if names := forbidden(ca, s.dnsNames, s.ips); len(names) > 0 {
		return fmt.Sprintf("expected a CA that may sign %s, found name constraints (%s)", strings.Join(names, ", "), constraintsOf(ca))
	}
	return ""
}
