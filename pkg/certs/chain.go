// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/x509"
	"fmt"
	"strings"
	"time"
)

// chain is a CA and its one leaf: what they must be, what was found, and what is done about it.
type chain struct {
	now   time.Time
	newCA CAOptions // for a CA made now
	want  spec      // what the leaf must be, times excepted

	ca, leaf                 pairDir
	caDecision, leafDecision decision
}

// decision is what to do about a pair, and why.
type decision struct {
	action Action
	reason string
	notes  []string
	// reuse keeps certificate and key of a leaf that is written again for the sake of its bundle.
	reuse bool
}

// signs is true when the CA's key is needed.
func (d decision) signs() bool { return d.action != Kept && !d.reuse }

// RenewAt is when a third of the certificate's life is left: time enough to repair a renewal that does not work.
func RenewAt(cert *x509.Certificate) time.Time {
	return cert.NotAfter.Add(-cert.NotAfter.Sub(cert.NotBefore) / 3)
}

// plan reads both directories and decides. It changes no certificate and no key.
func (c *chain) plan(allowNewCA bool) error {
	for _, d := range []*pairDir{&c.ca, &c.leaf} {
		if err := d.load(); err != nil {
			return err
		}
	}
	var refusal *RefusedError
	if c.caDecision, refusal = c.decideCA(); refusal == nil {
		c.leafDecision = c.decideLeaf()
		if c.caDecision.action == Kept && c.ca.key == nil && c.leafDecision.signs() {
			refusal = &RefusedError{c.ca.file(KeyFile), fmt.Sprintf("expected the CA's key, found none, but %s must be signed anew (%s)",
				c.leaf.file(CertFile), c.leafDecision.reason)}
		}
	}
	if refusal == nil {
		return nil
	}
	if !allowNewCA {
		refusal.Reason += "; put that right (from a backup?), or allow a new CA with --allow-new-ca, which everything that trusts the old one must then be told of"
		return refusal
	}
	c.caDecision = decision{action: Replaced, reason: refusal.Error()}
	c.leafDecision = c.decideLeaf()
	return nil
}

// decideCA decides about the CA, or refuses because it would have to be replaced while it is still trusted.
func (c *chain) decideCA() (decision, *RefusedError) {
	found := &c.ca
	if !found.certSeen && !found.keySeen {
		// Somebody may have taken the whole CA to a safe place. A new one would break what works.
		if c.leaf.cert != nil && !c.now.After(c.leaf.cert.NotAfter) {
			return decision{}, &RefusedError{found.path, fmt.Sprintf("expected the CA of %s, which is valid until %s, found none",
				c.leaf.file(CertFile), timeText(c.leaf.cert.NotAfter))}
		}
		return decision{action: Made, reason: "there was none"}, nil
	}
	if found.cert != nil && c.now.After(found.cert.NotAfter) {
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
		return &RefusedError{cert, "expected the certificate of the key beside it, found none"}
	case found.certErr != nil:
		return &RefusedError{cert, found.certErr.Error()}
	case found.keyErr != nil:
		return &RefusedError{key, found.keyErr.Error()}
	case found.key != nil && !samePublicKey(found.cert.PublicKey, found.key.Public()):
		return &RefusedError{key, "expected the key of the certificate beside it, found another"}
	}
	if err := checkStrength(found.cert.PublicKey); err != nil {
		return &RefusedError{cert, err.Error()}
	}
	if reason := unusableCA(found.cert, c.want.usage, c.now); reason != "" {
		return &RefusedError{cert, reason}
	}
	if names := forbidden(found.cert, c.want.dnsNames, c.want.ips); len(names) > 0 {
		return &RefusedError{cert, fmt.Sprintf("expected a CA that may sign %s, found name constraints (%s)",
			strings.Join(names, ", "), constraintsOf(found.cert))}
	}
	return nil
}

// caNotes says where a CA that is kept could be better.
func (c *chain) caNotes() []string {
	var notes []string
	cert := c.ca.cert
	if c.ca.key == nil {
		notes = append(notes, "its key is not here; its leaf can only be replaced where the key is")
	}
	if c.now.After(RenewAt(cert)) {
		notes = append(notes, fmt.Sprintf("less than a third of its life is left (until %s): plan its rotation", timeText(cert.NotAfter)))
	}
	if len(cert.ExtKeyUsage) != 1 || cert.ExtKeyUsage[0] != c.want.usage {
		notes = append(notes, fmt.Sprintf("its extended key usages are %s; %s alone would be enough",
			extKeyUsageNames(cert.ExtKeyUsage, cert.UnknownExtKeyUsage), extKeyUsageNames([]x509.ExtKeyUsage{c.want.usage}, nil)))
	}
	if len(c.want.dnsNames) > 0 && len(cert.PermittedDNSDomains) == 0 {
		notes = append(notes, "it has no name constraints: with its key a certificate for any host can be made")
	}
	return notes
}

// decideLeaf decides about the leaf once it is known what becomes of its CA.
func (c *chain) decideLeaf() decision {
	if !c.leaf.certSeen && !c.leaf.keySeen {
		return decision{action: Made, reason: "there was none"}
	}
	if c.caDecision.action != Kept {
		return decision{action: Replaced, reason: "its CA is new"}
	}
	if reason := c.checkLeaf(); reason != "" {
		return decision{action: Replaced, reason: reason}
	}
	ca, leaf, notes := c.ca.cert, c.leaf.cert, c.leaf.notes
	if c.now.After(RenewAt(leaf)) {
		if leaf.NotAfter.Before(ca.NotAfter) {
			return decision{action: Replaced, reason: fmt.Sprintf("less than a third of its life was left (until %s)", timeText(leaf.NotAfter))}
		}
		notes = append(notes, "it is due, but a new one would end no later: it ends with its CA")
	}
	if !c.leaf.bundle.Contains(ca) {
		return decision{action: Replaced, reason: BundleFile + " did not hold its CA; certificate and key stay the same", notes: notes, reuse: true}
	}
	return decision{action: Kept, reason: "it is valid and what was asked for", notes: notes}
}

// checkLeaf returns why the leaf that was found is not right, or "".
func (c *chain) checkLeaf() string {
	found := &c.leaf
	switch {
	case !found.certSeen:
		return CertFile + " was missing"
	case !found.keySeen:
		return KeyFile + " was missing"
	case found.certErr != nil:
		return CertFile + " was damaged: " + found.certErr.Error()
	case found.keyErr != nil:
		return KeyFile + " was damaged: " + found.keyErr.Error()
	case !samePublicKey(found.cert.PublicKey, found.key.Public()):
		return KeyFile + " was not the key of " + CertFile
	case found.cert.CheckSignatureFrom(c.ca.cert) != nil:
		return fmt.Sprintf("it was signed by %s, not by the CA in %s", found.cert.Issuer, c.ca.path)
	case c.now.After(found.cert.NotAfter):
		return "it expired at " + timeText(found.cert.NotAfter)
	}
	if differences := c.want.mismatches(found.cert); len(differences) > 0 {
		return strings.Join(differences, "; ")
	}
	if err := c.want.verify(found.cert, Bundle{c.ca.cert}, c.now); err != nil {
		return "it did not verify: " + err.Error()
	}
	return ""
}
