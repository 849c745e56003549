// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"time"

	"example.com/extension-apiserver/internal/frontproxy/sharedca"
)

// chain is a CA and its leaves: what they must be, what was found, and what is done about it. Its steps are plan, which
// reads and decides, issue, which signs in memory, and save, which alone writes.
type chain struct {
	now     time.Time
	ca      authority
	leaves  []*leaf
	remote  *RemoteSigner // has the CA's key
	userCAs Bundle        // the CAs of the cluster's users, none of which may be here
}

type authority struct {
	pairDir
	decision decision
	options  CAOptions // for a CA made now
	issuer   *CA       // set by issue
}

type leaf struct {
	pairDir
	decision   decision
	want       spec // what it must be, times excepted
	afterwards string
	pair       *KeyPair // set by issue, with trust, unless it is kept
	trust      Bundle
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

func (d *decision) note(format string, args ...any) {
	d.notes = append(d.notes, fmt.Sprintf(format, args...))
}

// RenewAt is when a third of the certificate's life is left: time enough to repair a renewal that does not work.
func RenewAt(cert *x509.Certificate) time.Time {
	return cert.NotAfter.Add(-cert.NotAfter.Sub(cert.NotBefore) / 3)
}

// complete finishes what a run that was cut short began to write.
func (c *chain) complete() error {
	errs := []error{c.ca.store.Write(c.ca.name, nil)}
	for _, l := range c.leaves {
		errs = append(errs, l.store.Write(l.name, nil))
	}
	return errors.Join(errs...)
}

func (c *chain) load() error {
	if err := c.ca.load(); err != nil {
		return err
	}
	for _, l := range c.leaves {
		if err := l.load(); err != nil {
			return err
		}
	}
	return nil
}

// plan reads the directories and decides. It writes nothing.
func (c *chain) plan(allowNewCA bool) error {
	if err := c.load(); err != nil {
		return err
	}
	if err := c.checkUserCAs(); err != nil {
		return err
	}
	var refusal *RefusedError
	if c.ca.decision, refusal = c.decideCA(); refusal == nil {
		c.decideLeaves()
		refusal = c.checkKeyNeeded()
	}
	if refusal == nil {
		return nil
	}
	if c.remote != nil {
		return refusal // a new CA would have its key here
	}
	if !allowNewCA {
		refusal.OnlyNewCA = true
		return refusal
	}
	c.ca.decision = decision{action: Replaced, reason: refusal.Error()}
	c.decideLeaves()
	return nil
}

// checkUserCAs refuses a CA of ours that can stand in for one of users, or the other way round. Where it is trusted as the
// front proxy's CA, or as that of konnectivity's agents, every user's certificate would be trusted too. A new CA would not
// help, as long as the old one stays in a bundle.
func (c *chain) checkUserCAs() error {
	check := func(file string, ours ...*x509.Certificate) error {
		for _, cert := range ours {
			for _, users := range c.userCAs {
				if cert == nil {
					continue
				}
				if relation := sharedca.Relation(cert, users); relation != "" {
					return &RefusedError{Path: file, Reason: fmt.Sprintf("expected a CA of its own, found one that %s %s, which signs users (--client-ca); "+
						"a user's certificate could pass for any user; move this pair and its leaves away and let certgen make new ones", relation, users.Subject)}
				}
			}
		}
		return nil
	}
	if err := check(c.ca.file(CertFile), c.ca.cert); err != nil {
		return err
	}
	for _, l := range c.leaves {
		if err := check(l.file(BundleFile), l.bundle...); err != nil {
			return err
		}
	}
	return nil
}

// checkKeyNeeded refuses when a leaf must be signed and the CA's key is not here.
func (c *chain) checkKeyNeeded() *RefusedError {
	if c.ca.decision.action != Kept || c.ca.key != nil || c.remote != nil {
		return nil
	}
	var needed []string
	for _, l := range c.leaves {
		if l.decision.signs() {
			needed = append(needed, fmt.Sprintf("%s must be signed anew (%s; certgen request %s asks for it where the key is)", l.file(CertFile), l.decision.reason, l.name))
		}
	}
	if len(needed) == 0 {
		return nil
	}
	return &RefusedError{Path: c.ca.file(KeyFile), Reason: "expected the CA's key, found none, but " + strings.Join(needed, ", ")}
}
