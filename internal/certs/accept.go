// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// IssueReport says which certificate a command made or took.
type IssueReport struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"` // AcceptReport, SignReport or KubeconfigReport
	Item
	Next []string `json:"next"` // commands to run now
}

// AcceptOptions say which certificate has come.
type AcceptOptions struct {
	Dir, Name string // as for Request
	CertFile  string // the certificate
	// CAFile is the certificate of its CA, which is stored beside the leaf; empty if that is there already.
	CAFile         string
	AllowLongLived bool             // accept one that lasts longer than MaxLeafLifetime
	Now            func() time.Time // nil means time.Now
}

// Accept puts a certificate that was signed for a pending request, its key and the CA to trust in use, in one step. The
// certificate must be what was asked for, in every part, and come from the CA; otherwise each difference is a
// *RefusedError, they are joined, and nothing has changed.
func Accept(ctx context.Context, opts AcceptOptions) (*IssueReport, error) {
	set, err := findLeaf(opts.Name)
	if err != nil {
		return nil, err
	}
	if opts.Dir == "" {
		return nil, &InvalidError{"dir", "", "expected the directory in which certgen request was run"}
	}
	a := &acceptance{
		AcceptOptions: opts, now: clock(opts.Now)(),
		ca:   pairDir{store: Dir(opts.Dir), name: set.cas[0].dir},
		leaf: pairDir{store: Dir(opts.Dir), name: opts.Name},
	}
	return locked(ctx, Dir(opts.Dir), a.run)
}

type acceptance struct {
	AcceptOptions
	now      time.Time
	ca, leaf pairDir
}

func (a *acceptance) run() (*IssueReport, error) {
	pending := a.leaf.file(PendingDir)
	if err := errors.Join(repairLinks(pending), a.ca.load(), a.leaf.load()); err != nil {
		return nil, err
	}
	csr, key, err := readPending(pending)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &RefusedError{Path: pending, Reason: "expected a pending request, found none; make one with certgen request " + a.Name}
	}
	if err != nil {
		return nil, &RefusedError{Path: pending, Reason: err.Error() + "; make a new request with certgen request " + a.Name}
	}
	want, err := specOf(csr)
	if err != nil {
		return nil, &RefusedError{Path: pending, Reason: err.Error()}
	}
	ca, err := a.findCA()
	if err != nil {
		return nil, err
	}
	cert, err := readCertificate(a.CertFile)
	if err != nil {
		return nil, err
	}
	if err := a.check(cert, ca, csr, want); err != nil {
		return nil, err
	}
	pair, err := newKeyPair(cert, key)
	if err != nil {
		return nil, err
	}
	return a.store(pair, ca, pending)
}

// store writes the CA's certificate where it is not yet, then the leaf; last goes the pending request. Whatever is
// missing after a run that was cut short, the next Accept does.
func (a *acceptance) store(pair *KeyPair, ca *x509.Certificate, pending string) (*IssueReport, error) {
	if !a.ca.certSeen {
		if err := WriteFiles(a.ca.path(), Files{CertFile: {Bundle{ca}.PEM(), certMode}}); err != nil {
			return nil, err
		}
	}
	d := decision{action: Made, reason: "it is what was asked for, and " + ca.Subject.String() + " signed it"}
	if a.leaf.certSeen {
		d.action = Replaced
	}
	trust := a.leaf.bundle.Merge(a.now, ca)
	if len(trust) > 1 {
		d.note("%s holds %d CAs, so that what an older one signed stays accepted", BundleFile, len(trust))
	}
	if err := pair.Write(a.leaf.path(), trust); err != nil {
		return nil, err
	}
	if err := os.RemoveAll(pending); err != nil {
		return nil, fmt.Errorf("remove pending request: %w", err)
	}
	return &IssueReport{
		APIVersion: APIVersion, Kind: "AcceptReport", Item: newItem(&a.leaf, d, pair.Certificate, a.now),
		Next: []string{"certgen verify " + a.leaf.path()},
	}, nil
}

// findCA returns the CA that is here, or the one that was given if none is. They must not differ, since Init would
// replace a leaf of another CA than the one beside it.
func (a *acceptance) findCA() (*x509.Certificate, error) {
	switch {
	case a.ca.certErr != nil:
		return nil, &RefusedError{Path: a.ca.file(CertFile), Reason: a.ca.certErr.Error()}
	case a.ca.keySeen && !a.ca.certSeen:
		return nil, &RefusedError{Path: a.ca.file(CertFile), Reason: "expected the certificate of the key beside it, found none; restore it, or move the key away"}
	}
	if a.CAFile == "" {
		if a.ca.cert == nil {
			return nil, &RefusedError{Path: a.ca.file(CertFile), Reason: "expected the certificate of the CA, found none; give it with --ca"}
		}
		return a.ca.cert, nil
	}
	given, err := readCertificate(a.CAFile)
	if err != nil {
		return nil, err
	}
	if a.ca.cert != nil && !a.ca.cert.Equal(given) {
		return nil, &RefusedError{Path: a.CAFile, Reason: fmt.Sprintf("expected the CA in %s (%s), found %s; to change the CA, move %s away first",
			a.ca.file(CertFile), a.ca.cert.Subject, given.Subject, a.ca.path())}
	}
	return given, nil
}

func (a *acceptance) check(cert, ca *x509.Certificate, csr *x509.CertificateRequest, want spec) error {
	var errs []error
	refuse := func(path, reason string) { errs = append(errs, &RefusedError{Path: path, Reason: reason}) }
	if reason := unfitFor(ca, want, a.now); reason != "" {
		refuse(cmp.Or(a.CAFile, a.ca.file(CertFile)), reason)
	}
	if err := checkStrength(ca.PublicKey); err != nil {
		refuse(cmp.Or(a.CAFile, a.ca.file(CertFile)), err.Error())
	}
	if !SamePublicKey(cert.PublicKey, csr.PublicKey) {
		refuse(a.CertFile, "expected the key of the pending request, found another; was it signed for an older request?")
	}
	for _, reason := range want.wrongWith(cert, ca, a.now) {
		refuse(a.CertFile, reason)
	}
	if cert.NotAfter.After(ca.NotAfter) {
		refuse(a.CertFile, fmt.Sprintf("validity: ends %s, after its CA at %s", timeText(cert.NotAfter), timeText(ca.NotAfter)))
	}
	if limit := leafLimit(a.AllowLongLived); limit > 0 && cert.NotAfter.Sub(cert.NotBefore) > limit+backdate {
		refuse(a.CertFile, fmt.Sprintf("validity: expected at most 398 days, the most that TLS clients accept, found %s to %s; "+
			"ask for less, or allow it with --allow-long-lived", timeText(cert.NotBefore), timeText(cert.NotAfter)))
	}
	return errors.Join(errs...)
}

// readCertificate reads a file with exactly one certificate.
func readCertificate(path string) (*x509.Certificate, error) {
	b, err := ReadBundle(path)
	if err != nil {
		return nil, err
	}
	cert, err := b.single()
	if err != nil {
		return nil, &RefusedError{Path: path, Reason: err.Error()}
	}
	return cert, nil
}
