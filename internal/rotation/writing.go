// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"bytes"
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"

	"example.com/extension-apiserver/internal/certs"
)

// bundleOf is what ca.crt of the i-th leaf's set holds at some step. What the caBundles hold is that of the first.
type bundleOf func(i int) (certs.Bundle, error)

// writeNew puts the new leaf, and its CA when that is new, in use. The CA goes first: a certgen init that comes between
// would sign with it.
func (p *procedure) writeNew(read bundleOf) error {
	if err := p.ours(); err != nil {
		return err
	}
	if p.newCA {
		ca, err := certs.ReadPair(p.opts.Store, staged(p.caDir))
		if err != nil {
			return err
		}
		if err := p.write(ca, p.caDir, nil); err != nil {
			return err
		}
	}
	return p.writeLeaves(read, func(int) string { return staged(p.leafName(0)) })
}

// writeOld puts the old leaf, and its CA, back in use.
func (p *procedure) writeOld(read bundleOf) error {
	if err := p.ours(); err != nil {
		return err
	}
	if p.newCA {
		if err := p.copyPair(kept(p.caDir), p.caDir); err != nil {
			return err
		}
	}
	return p.rewriteLeaves(read)
}

// rewriteOld writes the leaf that is in use again, for the sake of ca.crt beside it.
func (p *procedure) rewriteOld(read bundleOf) error {
	if err := p.ours(); err != nil {
		return err
	}
	return p.rewriteLeaves(read)
}

func (p *procedure) rewriteLeaves(read bundleOf) error {
	return p.writeLeaves(read, func(i int) string { return kept(p.leafName(i)) })
}

// restoreOld puts every file of the leaves back as it was, to the byte.
func (p *procedure) restoreOld() error {
	if err := p.ours(); err != nil {
		return err
	}
	for i, dir := range p.leafDirs {
		if err := p.copyPair(kept(p.leafName(i)), dir); err != nil {
			return err
		}
	}
	return nil
}

// writeLeaves writes certificate, key and bundle of each set in one step.
func (p *procedure) writeLeaves(read bundleOf, from func(i int) string) error {
	for i, dir := range p.leafDirs {
		bundle, err := read(i)
		if err != nil {
			return err
		}
		pair, err := certs.ReadPair(p.opts.Store, from(i))
		if err != nil {
			return err
		}
		if err := p.write(pair, dir, issuerFirst(bundle, pair.Certificate)); err != nil {
			return err
		}
	}
	return nil
}

// ours refuses to write over certificates of another CA than the old and the new one: somebody else replaced that CA since, and what trusted the
// old one may not any more. What cannot be read is written again.
func (p *procedure) ours() error {
	var known certs.Bundle
	for _, set := range []string{kept(p.caDir), staged(p.caDir)} {
		if ca, err := p.certificate(set); err == nil {
			known = append(known, ca)
		}
	}
	var errs []error
	for _, dir := range p.leafDirs {
		live, err := p.certificate(dir)
		if err == nil && !slices.ContainsFunc(known, func(ca *x509.Certificate) bool { return signedBy(live, ca) == 1 }) {
			errs = append(errs, fmt.Errorf("%s holds a certificate (sha256:%.16s) of another CA than this rotation knows: another certgen, or somebody else, replaced it; "+
				"to keep it and give this rotation up, remove %s", p.opts.Store.Path(dir), certs.Fingerprint(live), p.opts.Store.Path(StateSet)))
		}
	}
	return errors.Join(errs...)
}

// issuerFirst keeps the order but for the CA that signed leaf: kubeadm takes the first in front-proxy-ca.crt for the one whose
// key it has, and signs and checks front-proxy-client.crt with it.
func issuerFirst(bundle certs.Bundle, leaf *x509.Certificate) certs.Bundle {
	out := slices.Clone(bundle)
	slices.SortStableFunc(out, func(a, b *x509.Certificate) int {
		return cmp.Compare(signedBy(leaf, b), signedBy(leaf, a))
	})
	return out
}

func signedBy(leaf, ca *x509.Certificate) int {
	if bytes.Equal(leaf.RawIssuer, ca.RawSubject) && leaf.CheckSignatureFrom(ca) == nil {
		return 1
	}
	return 0
}

// write replaces a set's pair and bundle in one step, and copyPair by those of another.
func (p *procedure) write(pair *certs.KeyPair, set string, bundle certs.Bundle) error {
	defer p.opts.wrote()
	return p.opts.Store.Write(set, pair.Files(bundle))
}

func (p *procedure) copyPair(from, to string) error {
	if _, err := p.certificate(from); err != nil {
		return err
	}
	files, err := p.opts.Store.Read(from)
	if err != nil {
		return err
	}
	defer p.opts.wrote()
	return p.opts.Store.Write(to, files)
}

// readCA reads a CA that can sign.
func (p *procedure) readCA(set string) (*certs.CA, error) {
	if p.opts.Signer != nil && p.caDir == certs.ServingCADir {
		cert, err := p.certificate(set)
		if err != nil {
			return nil, err
		}
		return certs.RemoteCA(cert, p.opts.Signer, p.opts.Now)
	}
	files, err := p.opts.Store.Read(set)
	if err != nil {
		return nil, err
	}
	if _, ok := files[certs.KeyFile]; !ok {
		return nil, &certs.RefusedError{Path: p.opts.Store.Path(set, certs.KeyFile),
			Reason: "expected the CA's key, found none; have the certificate signed where the key is, with certgen request and certgen request accept, or rotate the CA"}
	}
	ca, err := certs.ParseCA(files[certs.CertFile].Data, files[certs.KeyFile].Data, p.opts.Now)
	if err != nil {
		return nil, &certs.RefusedError{Path: p.opts.Store.Path(set), Reason: err.Error()}
	}
	return ca, nil
}

// keptBundle is what ca.crt beside the i-th old leaf held, with the old CA.
func (p *procedure) keptBundle(i int) (certs.Bundle, error) {
	old, err := p.oldCA()
	if err != nil {
		return nil, err
	}
	files, err := p.opts.Store.Read(kept(p.leafName(i)))
	if err != nil {
		return nil, err
	}
	file, ok := files[certs.BundleFile]
	if !ok {
		return certs.Bundle{old}, nil
	}
	bundle, err := certs.ParseBundle(file.Data)
	if err != nil {
		return nil, err
	}
	return bundle.Merge(p.opts.Now(), old), nil
}

// bothTrusted is keptBundle with the new CA.
func (p *procedure) bothTrusted(i int) (certs.Bundle, error) {
	bundle, err := p.keptBundle(i)
	if err != nil {
		return nil, err
	}
	next, err := p.nextCA()
	if err != nil {
		return nil, err
	}
	return bundle.Merge(p.opts.Now(), next), nil
}

// onlyNewTrusted is bothTrusted without the old CA: others may have theirs there too.
func (p *procedure) onlyNewTrusted(i int) (certs.Bundle, error) {
	both, err := p.bothTrusted(i)
	if err != nil {
		return nil, err
	}
	old, err := p.oldCA()
	if err != nil {
		return nil, err
	}
	return both.Without(old), nil
}
