// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// apply does what was planned, the CA before its leaf: a run that stops in between leaves a leaf of another CA, which
// the next run replaces, and never a leaf without its CA.
func (c *chain) apply() ([]Item, error) {
	ca := &CA{KeyPair: KeyPair{Certificate: c.ca.cert, Key: c.ca.key}, now: c.newCA.Now}
	if c.caDecision.action != Kept {
		var err error
		if ca, err = c.replaceCA(); err != nil {
			return nil, err
		}
	}
	leaf := c.leaf.cert
	if c.leafDecision.action != Kept {
		pair, err := c.writeLeaf(ca)
		if err != nil {
			return nil, err
		}
		leaf = pair.Certificate
	}
	if leaf.NotAfter.Equal(ca.Certificate.NotAfter) && c.leafDecision.action != Kept {
		c.leafDecision.notes = append(c.leafDecision.notes, "it ends with its CA: rotate the CA before that")
	}
	return []Item{
		newItem(&c.ca, c.caDecision, ca.Certificate, c.now),
		newItem(&c.leaf, c.leafDecision, leaf, c.now),
	}, nil
}

// replaceCA makes the CA. One that was there is moved aside with its key, since it may yet be needed: to go back to
// it, or to repair it.
func (c *chain) replaceCA() (*CA, error) {
	ca, err := NewCA(c.newCA)
	if err != nil {
		return nil, err
	}
	if c.ca.certSeen || c.ca.keySeen {
		aside := c.ca.path + ".old-" + c.now.UTC().Format("20060102T150405Z")
		if err := os.Rename(c.ca.path, aside); err != nil {
			return nil, fmt.Errorf("move old CA aside: %w", err)
		}
		if err := syncDir(filepath.Dir(aside)); err != nil {
			return nil, err
		}
		c.caDecision.notes = append(c.caDecision.notes, "the old one is in "+aside+"; delete it when nothing trusts it any more")
	}
	if c.caDecision.action == Replaced {
		c.caDecision.notes = append(c.caDecision.notes,
			"whatever trusts only the old CA refuses the new "+c.leaf.name+" certificate until it gets "+c.leaf.file(BundleFile))
	}
	return ca, ca.Write(c.ca.path, nil)
}

// writeLeaf issues the leaf, or takes the one that is there, and writes it with the CAs to trust: its own and those
// already in the bundle, which may be there for a rotation.
func (c *chain) writeLeaf(ca *CA) (*KeyPair, error) {
	var pair *KeyPair
	var err error
	if c.leafDecision.reuse {
		pair, err = newKeyPair(c.leaf.cert, c.leaf.key)
	} else {
		pair, err = ca.issue(c.want, 0)
	}
	if err != nil {
		return nil, err
	}
	bundle := c.leaf.bundle.Merge(c.now, ca.Certificate)
	if len(bundle) > 1 {
		c.leafDecision.notes = append(c.leafDecision.notes,
			fmt.Sprintf("%s holds %d CAs, so that what an older one signed stays accepted", BundleFile, len(bundle)))
	}
	return pair, pair.Write(c.leaf.path, bundle)
}

func newItem(dir *pairDir, d decision, cert *x509.Certificate, now time.Time) Item {
	return Item{
		Name: dir.name, Path: dir.path, Action: d.action, Reason: d.reason, Notes: d.notes,
		// Only a CA's decision can change trust, and only by replacing it.
		TrustChanged: cert.IsCA && d.action == Replaced,
		Certificate:  describe(cert, now),
	}
}
