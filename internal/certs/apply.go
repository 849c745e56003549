// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/x509"
	"regexp"
	"time"
)

// issue makes what was decided, in memory: whatever can be refused or fail in signing does so before a file changes.
func (c *chain) issue() error {
	if err := c.issueCA(); err != nil {
		return err
	}
	for _, l := range c.leaves {
		if l.decision.action == Kept {
			continue
		}
		var err error
		if l.decision.reuse {
			l.pair, err = newKeyPair(l.cert, l.key)
		} else {
			l.pair, err = c.ca.issuer.issue(l.want)
		}
		if err != nil {
			return err
		}
		if l.pair.Certificate.NotAfter.Equal(c.ca.issuer.Certificate.NotAfter) {
			l.decision.note("it ends with its CA: rotate the CA before that")
		}
		// The CAs that are in the bundle already may be there for a rotation.
		if l.trust = l.bundle.Merge(c.now, c.ca.issuer.Certificate); len(l.trust) > 1 {
			l.decision.note("%s holds %d CAs, so that what an older one signed stays accepted", BundleFile, len(l.trust))
		}
	}
	return nil
}

func (c *chain) issueCA() (err error) {
	if c.ca.decision.action == Kept {
		c.ca.issuer = &CA{KeyPair: KeyPair{Certificate: c.ca.cert, Key: c.ca.key}, remote: c.remote, now: func() time.Time { return c.now }}
		return nil
	}
	if c.ca.issuer, err = NewCA(c.ca.options); err != nil {
		return err
	}
	if c.ca.certSeen || c.ca.keySeen {
		c.ca.decision.note("the old one is in %s; delete it when nothing trusts it any more", c.aside())
	}
	if c.ca.decision.action == Replaced {
		for _, l := range c.leaves {
			c.ca.decision.note("whatever trusts only the old CA refuses the new %s certificate until it gets %s", l.name, l.file(BundleFile))
		}
	}
	return nil
}

// aside is where an old CA goes with its key, since it may yet be needed: to go back to it, or to repair it.
func (c *chain) aside() string { return AsideDir(c.ca.path(), c.now) }

const asideTime = "20060102T150405Z"

var asideName = regexp.MustCompile(`\.old-\d{8}T\d{6}Z$`)

// AsideDir is where the CA in dir goes when it is replaced at now: whoever still trusts it may need it.
func AsideDir(dir string, now time.Time) string { return dir + ".old-" + now.UTC().Format(asideTime) }

// IsAside tells by its name whether dir holds a CA that was replaced.
func IsAside(dir string) bool { return asideName.MatchString(dir) }

// save writes what was issued, the CA before its leaves: a run that stops in between leaves a leaf of another CA, which
// the next run replaces, and never a leaf without its CA. It also completes what an earlier run left half done.
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
	if c.ca.decision.action == Kept {
		return nil
	}
	if c.ca.certSeen || c.ca.keySeen {
		if err := c.ca.store.Move(c.ca.name, AsideDir(c.ca.name, c.now)); err != nil {
			return err
		}
	}
	return c.ca.store.Write(c.ca.name, c.ca.issuer.Files(nil))
}

// items reports the CA and its leaves. What is random is left out of a dry run: the next run will have it otherwise.
func (c *chain) items(dryRun bool) []Item {
	out := []Item{newItem(&c.ca.pairDir, c.ca.decision, c.ca.issuer.Certificate, c.now)}
	for _, l := range c.leaves {
		cert := l.cert
		if l.pair != nil {
			cert = l.pair.Certificate
		}
		out = append(out, newItem(&l.pairDir, l.decision, cert, c.now))
	}
	for i := range out {
		if d := &out[i]; dryRun && d.Action != Kept {
			d.Certificate.Serial, d.Certificate.SHA256, d.Certificate.SubjectKeyID, d.Certificate.AuthorityKeyID = "", "", "", ""
		}
	}
	return out
}

func newItem(dir *pairDir, d decision, cert *x509.Certificate, now time.Time) Item {
	return Item{
		Name: dir.name, Path: dir.path(), Action: d.action, Reason: d.reason, Notes: d.notes,
		// Only a CA's decision can change trust, and only by replacing it.
		TrustChanged: cert.IsCA && d.action == Replaced,
		Certificate:  Describe(cert, now),
	}
}
