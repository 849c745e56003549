// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/x509"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"example.com/extension-apiserver/internal/frontproxy/sharedca"
)

// chain is a CA and its leaves, with the wanted state, the state found on disk and the resulting
// decisions. Its steps are plan, which reads and decides, issue, which signs in memory, and
// save, which writes the files.
type chain struct {
	now     time.Time
	ca      authority
	leaves  []*leaf
	remote  *RemoteSigner // holds the CA's key
	userCAs Bundle        // the CAs that sign the cluster's users; none of them may be used here
}

type authority struct {
	pairDir
	options CAOptions // for a new CA
	issuer  *CA       // set by issue
}

type leaf struct {
	pairDir
	reuse      bool // write the bundle again, with the existing certificate and key
	want       spec // the wanted certificate, except for its times
	afterwards string
	pair       *KeyPair // set by issue together with trust, unless the leaf is kept
	trust      Bundle
}

func (i *Item) note(format string, args ...any) {
	i.Notes = append(i.Notes, fmt.Sprintf(format, args...))
}

// RenewAt returns the time at which a third of the certificate's lifetime is left. That leaves
// time to repair a failing renewal.
func RenewAt(cert *x509.Certificate) time.Time {
	return cert.NotAfter.Add(-cert.NotAfter.Sub(cert.NotBefore) / 3)
}

// pairs returns the key pairs of the CA and its leaves.
func (c *chain) pairs() []*pairDir {
	out := []*pairDir{&c.ca.pairDir}
	for _, l := range c.leaves {
		out = append(out, &l.pairDir)
	}
	return out
}

func (c *chain) load() error {
	for _, d := range c.pairs() {
		if err := d.load(); err != nil {
			return err
		}
	}
	return nil
}

// plan reads the directories and decides what to do. It writes nothing.
func (c *chain) plan(allowNewCA bool) error {
	if err := c.load(); err != nil {
		return err
	}
	if err := c.checkUserCAs(); err != nil {
		return err
	}
	var refusal *RefusedError
	if c.ca.decision, refusal = c.planCA(); refusal == nil {
		c.planLeaves()
		refusal = c.checkKeyNeeded()
	}
	if refusal == nil {
		return nil
	}
	if c.remote != nil {
		return refusal // a new CA's key would be stored here
	}
	if !allowNewCA {
		refusal.OnlyNewCA = true
		return refusal
	}
	c.ca.decision = Item{Action: Replaced, Reason: refusal.Error()}
	c.planLeaves()
	return nil
}

// checkUserCAs returns an error if one of our CAs and a CA of users share a key, or one signed
// the other. Servers that trust our CA for the front proxy or for konnectivity's agents would
// then trust every user's certificate. A new CA does not help while the old one remains in a
// bundle.
func (c *chain) checkUserCAs() error {
	for _, d := range c.pairs() {
		file, ours := BundleFile, d.bundle
		if d == &c.ca.pairDir && d.cert != nil {
			file, ours = CertFile, Bundle{d.cert}
		}
		for _, cert := range ours {
			for _, users := range c.userCAs {
				if relation := sharedca.Relation(cert, users); relation != "" {
					return &RefusedError{Path: d.file(file), Reason: fmt.Sprintf(
						"expected a dedicated CA, found one that %s %s, which signs users (--client-ca); "+
							"any user with a certificate could impersonate every other user; move this CA and its "+
							"certificates away and let certgen issue new ones", relation, users.Subject)}
				}
			}
		}
	}
	return nil
}

// checkKeyNeeded returns an error if a leaf must be signed and the CA's key is not available.
func (c *chain) checkKeyNeeded() *RefusedError {
	if c.ca.decision.Action != Kept || c.ca.key != nil || c.remote != nil {
		return nil
	}
	var needed []string
	for _, l := range c.leaves {
		if l.decision.Action != Kept && !l.reuse {
			needed = append(needed,
				fmt.Sprintf("%s must be signed again (%s; create a request with certgen request %s)",
					l.file(CertFile), l.decision.Reason, l.name))
		}
	}
	if len(needed) == 0 {
		return nil
	}
	return &RefusedError{Path: c.ca.file(KeyFile), Reason: "expected the CA's key, found none; " +
		strings.Join(needed, ", ")}
}

// planCA decides what to do with the CA. It returns an error if the CA would have to be replaced
// while it is still trusted.
func (c *chain) planCA() (Item, *RefusedError) {
	found := &c.ca
	if c.remote != nil && (!found.certSeen || found.keySeen) {
		return Item{}, &RefusedError{Path: found.path(), Reason: fmt.Sprintf(
			"expected the certificate of the CA whose key %s holds, and no key; "+
				"store it in %s, or remove --signer", c.remote.URL, found.file(CertFile))}
	}
	if !found.certSeen && !found.keySeen {
		// The CA may have been moved to a safe place. A new CA would break leaves that work.
		for _, l := range c.leaves {
			if l.cert != nil && !c.now.After(l.cert.NotAfter) {
				return Item{}, &RefusedError{Path: found.path(),
					Reason: fmt.Sprintf("expected the CA of %s, which is valid until %s, found none",
						l.file(CertFile), timeText(l.cert.NotAfter))}
			}
		}
		return Item{Action: Made, Reason: "not found"}, nil
	}
	if refusal := c.checkCA(); refusal != nil {
		return Item{}, refusal
	}
	return Item{Action: Kept, Reason: "valid, and permits the required names",
		Notes: append(found.notes, c.caNotes()...)}, nil
}

// checkCA returns the reason why the existing CA cannot be used, or nil.
func (c *chain) checkCA() *RefusedError {
	found := &c.ca
	cert, key := found.file(CertFile), found.file(KeyFile)
	switch {
	case !found.certSeen:
		return &RefusedError{Path: cert, Reason: "expected the certificate that matches the key, found none"}
	case found.certErr != nil:
		return &RefusedError{Path: cert, Reason: found.certErr.Error()}
	case found.keyErr != nil:
		return &RefusedError{Path: key, Reason: found.keyErr.Error()}
	case found.key != nil && !SamePublicKey(found.cert.PublicKey, found.key.Public()):
		return &RefusedError{Path: key, Reason: "expected the key that matches the certificate, found another"}
	}
	for _, l := range c.leaves {
		if err := checkIssuer(found.cert, l.want, c.now); err != nil {
			return &RefusedError{Path: cert, Reason: err.Error()}
		}
	}
	return nil
}

// caNotes returns possible improvements to a CA that is kept.
func (c *chain) caNotes() []string {
	var d Item
	cert, want := c.ca.cert, spec{isCA: true, usage: c.ca.options.Usage, mutual: c.ca.options.MutualTLS}.extKeyUsages()
	if c.remote != nil {
		d.note("the key is in %s", c.remote.URL)
	} else if c.ca.key == nil {
		d.note("the key is stored elsewhere; certgen cannot renew the certificates of this CA here")
	}
	if c.now.After(RenewAt(cert)) {
		d.note("less than a third of the lifetime is left (until %s): plan the rotation of the CA", timeText(cert.NotAfter))
	}
	if len(cert.ExtKeyUsage) != len(want) || slices.ContainsFunc(want,
		func(u x509.ExtKeyUsage) bool { return !slices.Contains(cert.ExtKeyUsage, u) }) {
		d.note("the extended key usages are %s; %s is sufficient",
			extKeyUsageNames(cert.ExtKeyUsage, cert.UnknownExtKeyUsage), extKeyUsageNames(want, nil))
	}
	if len(c.ca.options.PermittedDNS) > 0 && len(cert.PermittedDNSDomains) == 0 {
		d.note("no name constraints: the CA can sign certificates for any host")
	}
	if !c.ca.options.KeyType.matches(cert.PublicKey) {
		d.note("the key is %s; only a new CA would get the requested key type", keyType(cert.PublicKey))
	}
	return d.Notes
}

// planLeaves decides what to do with the leaves. It runs after the decision about their CA.
func (c *chain) planLeaves() {
	for _, l := range c.leaves {
		if l.decision = c.planLeaf(l); l.decision.Action == Replaced && !l.reuse && l.afterwards != "" {
			l.decision.note("%s", l.afterwards)
		}
	}
}

func (c *chain) planLeaf(l *leaf) Item {
	l.reuse = false
	if !l.certSeen && !l.keySeen {
		return Item{Action: Made, Reason: "not found"}
	}
	if c.ca.decision.Action != Kept {
		return Item{Action: Replaced, Reason: "CA replaced"}
	}
	if reason := c.checkLeaf(l); reason != "" {
		return Item{Action: Replaced, Reason: reason}
	}
	kept := Item{Action: Kept, Reason: "up to date", Notes: l.notes}
	if c.now.After(RenewAt(l.cert)) {
		if l.cert.NotAfter.Before(c.ca.cert.NotAfter) {
			return Item{Action: Replaced, Reason: fmt.Sprintf("less than a third of the lifetime was left (until %s)",
				timeText(l.cert.NotAfter))}
		}
		kept.note("due for renewal, but a new certificate would not be valid longer: it expires with its CA")
	}
	if !l.want.keyType.matches(l.cert.PublicKey) {
		kept.note("the key is %s; the next key will have the requested type", keyType(l.cert.PublicKey))
	}
	if !l.bundle.Contains(c.ca.cert) {
		kept.Action, l.reuse = Replaced, true
		kept.Reason = BundleFile + " did not contain the CA; certificate and key are unchanged"
	}
	return kept
}

// checkLeaf returns the reason why the existing leaf must be replaced, or "".
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
		return KeyFile + " did not match " + CertFile
	}
	return strings.Join(l.want.problems(l.cert, c.ca.cert, c.now), "; ")
}

// problems returns the reasons, as readable text, why cert is not the leaf of ca that s
// describes.
func (s spec) problems(cert, ca *x509.Certificate, now time.Time) []string {
	var out []string
	if cert.CheckSignatureFrom(ca) != nil {
		out = append(out, fmt.Sprintf("signed by %s, not by %s", cert.Issuer, ca.Subject))
	}
	if now.After(cert.NotAfter) {
		out = append(out, "expired at "+timeText(cert.NotAfter))
	}
	out = append(out, s.mismatches(cert)...)
	if err := s.verify(cert, Bundle{ca}, now); err != nil && len(out) == 0 {
		out = append(out, "verification failed: "+err.Error())
	}
	return out
}

// checkIssuer returns the reason why the CA cannot sign a leaf for s, or nil.
func checkIssuer(ca *x509.Certificate, s spec, now time.Time) error {
	if reason := unusableCA(ca, s.usage, now); reason != "" {
		return errors.New(reason)
	}
	if names := forbidden(ca, s.dnsNames, s.ips); len(names) > 0 {
		return fmt.Errorf("expected a CA that permits %s, found name constraints (%s)", strings.Join(names, ", "),
			constraintsOf(ca))
	}
	return checkStrength(ca.PublicKey)
}

// CheckSigner returns an error if ca may not sign a serving certificate with the names of leaf.
func CheckSigner(ca, leaf *x509.Certificate, now time.Time) error {
	return checkIssuer(ca, spec{usage: x509.ExtKeyUsageServerAuth, dnsNames: leaf.DNSNames,
		ips: toStrings(leaf.IPAddresses)}, now)
}

// issue signs the planned certificates in memory. Refusals and signing errors therefore occur
// before any file changes.
func (c *chain) issue() error {
	if err := c.issueCA(); err != nil {
		return err
	}
	return c.issueLeaves()
}

func (c *chain) issueLeaves() error {
	for _, l := range c.leaves {
		if l.decision.Action == Kept {
			continue
		}
		var err error
		if l.reuse {
			l.pair, err = newKeyPair(l.cert, l.key)
		} else {
			l.pair, err = c.ca.issuer.issue(l.want)
		}
		if err != nil {
			return err
		}
		if l.cert = l.pair.Certificate; l.cert.NotAfter.Equal(c.ca.cert.NotAfter) {
			l.decision.note("expires together with its CA: rotate the CA first")
		}
		// CAs that the bundle already contains may be there for a rotation.
		if l.trust = l.bundle.Merge(c.now, c.ca.cert); len(l.trust) > 1 {
			l.decision.note("%s contains %d CAs, so certificates of an older CA remain trusted",
				BundleFile, len(l.trust))
		}
	}
	return nil
}

func (c *chain) issueCA() (err error) {
	if c.ca.decision.Action == Kept {
		c.ca.issuer = &CA{KeyPair: KeyPair{Certificate: c.ca.cert, Key: c.ca.key}, remote: c.remote,
			now: func() time.Time { return c.now }}
		return nil
	}
	if c.ca.issuer, err = NewCA(c.ca.options); err != nil {
		return err
	}
	c.ca.cert = c.ca.issuer.Certificate
	if c.ca.certSeen || c.ca.keySeen {
		c.ca.decision.note("the old CA is in %s; delete it when no client trusts it any more",
			RetiredDir(c.ca.path(), c.now))
	}
	if c.ca.decision.Action == Replaced {
		for _, l := range c.leaves {
			c.ca.decision.note("clients that trust only the old CA refuse the new %s certificate until they get %s",
				l.name, l.file(BundleFile))
		}
	}
	return nil
}

const retiredTime = "20060102T150405Z"

var retiredName = regexp.MustCompile(`\.old-\d{8}T\d{6}Z$`)

// RetiredDir returns the directory to which a CA and its key move when they are replaced at now.
// They are kept for a rollback or a repair.
func RetiredDir(dir string, now time.Time) string {
	return dir + ".old-" + now.UTC().Format(retiredTime)
}

// IsRetired reports whether dir has the name of a retired CA directory.
func IsRetired(dir string) bool { return retiredName.MatchString(dir) }

// save writes the issued certificates, the CA before its leaves. An interrupted run can leave a
// leaf of another CA, which the next run replaces. It never leaves a leaf without its CA.
func (c *chain) save() error {
	if err := c.saveCA(); err != nil {
		return err
	}
	for _, l := range c.leaves {
		if l.pair == nil {
			continue
		}
		if err := l.store.Write(l.name, l.pair.Files(l.trust)); err != nil {
			return err
		}
	}
	return nil
}

func (c *chain) saveCA() error {
	if c.ca.decision.Action == Kept {
		return nil
	}
	if c.ca.certSeen || c.ca.keySeen {
		if err := c.ca.store.Move(c.ca.name, RetiredDir(c.ca.name, c.now)); err != nil {
			return err
		}
	}
	return c.ca.store.Write(c.ca.name, c.ca.issuer.Files(nil))
}

// items returns the report items for the CA and its leaves. A dry run omits random values,
// because the next run generates different ones.
func (c *chain) items(dryRun bool) []Item {
	var out []Item
	for _, d := range c.pairs() {
		item := d.item(c.now)
		if cert := item.Certificate; dryRun && item.Action != Kept {
			cert.Serial, cert.SHA256, cert.SubjectKeyID, cert.AuthorityKeyID = "", "", "", ""
		}
		out = append(out, item)
	}
	return out
}

// item returns the decision about the key pair with a description of its current certificate.
func (d *pairDir) item(now time.Time) Item {
	out := d.decision
	out.Name, out.Path, out.Certificate = d.name, d.path(), new(Describe(d.cert, now))
	// Only a CA's decision can change trust, and only by replacing the CA.
	out.TrustChanged = d.cert.IsCA && out.Action == Replaced
	return out
}
