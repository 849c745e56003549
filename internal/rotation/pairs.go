// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"time"

	"example.com/extension-apiserver/internal/certs"
)

// pairs contains the key pairs that a rotation replaces and their replacements. They are stored,
// so that the next run finds them after an interruption.
type pairs struct {
	oldCA, nextCA *x509.Certificate // nextCA is nil if the CA does not change
	next          *certs.KeyPair    // the new leaf, which all of leafDirs get
	old           []*certs.KeyPair  // the leaf in each of leafDirs when the rotation began
	bundles       []certs.Bundle    // the ca.crt next to each old leaf
}

// staged and kept return the set names of the new key pairs and of the copies of the old ones.
func (p *procedure) staged(name string) string { return path.Join(p.set, "new", name) }
func (p *procedure) kept(name string) string   { return path.Join(p.set, "old", name) }

// leafName is the name under which the i-th leaf is staged and kept.
func (p *procedure) leafName(i int) string {
	name := filepath.Base(p.leafDirs[0])
	if i > 0 {
		name = fmt.Sprintf("%s-%d", name, i+1)
	}
	return name
}

// stage creates the new key pairs and copies the old ones. It is repeated only while nothing
// uses its previous result.
func (p *procedure) stage(context.Context) error {
	if err := p.adoptKubeadms(); err != nil {
		return err
	}
	var without []string
	if p.makeCA == nil {
		without = []string{certs.KeyFile} // do not copy the key of a CA that does not change
	}
	if err := p.copyPair(p.caDir, p.kept(p.caDir), without...); err != nil {
		return err
	}
	for i, dir := range p.leafDirs {
		if err := p.copyPair(dir, p.kept(p.leafName(i))); err != nil {
			return err
		}
	}
	old, err := certs.ReadCertificate(p.opts.store, p.kept(p.leafName(0)))
	if err != nil {
		return err
	}
	ca, err := p.stageCA(old)
	if err != nil {
		return err
	}
	leaf, err := p.issue(ca, old)
	if err != nil {
		return err
	}
	if err := p.write(leaf, p.staged(p.leafName(0)), certs.Bundle{ca.Certificate}); err != nil {
		return err
	}
	return p.load() // find unreadable files while the step can still be undone
}

// stageCA returns the CA of the new leaf. If the rotation replaces the CA, it stages a new one.
func (p *procedure) stageCA(leaf *x509.Certificate) (*certs.CA, error) {
	if p.makeCA == nil {
		return p.readCA()
	}
	ca, err := p.newCA(leaf)
	if err != nil {
		return nil, err
	}
	return ca, p.write(&ca.KeyPair, p.staged(p.caDir), nil)
}

// newCA creates a CA, or returns the one with a remote signer with which the rotation began.
func (p *procedure) newCA(leaf *x509.Certificate) (*certs.CA, error) {
	if p.state.NewCA != p.opts.newCASum() {
		return nil, &certs.RefusedError{Path: p.opts.store.Path(p.set, StateFile), Reason: fmt.Sprintf(
			"expected the --new-ca with which the rotation started (sha256:%.16s), found none; set --new-ca and "+
				"--signer again, or reverse the rotation with --abort", p.state.NewCA)}
	}
	if err := p.checkNewCA(leaf); err != nil {
		return nil, err
	}
	if p.opts.NewCA != nil {
		return certs.RemoteCA(p.opts.NewCA, p.opts.Signer, p.opts.Now)
	}
	options := p.makeCA(leaf)
	options.KeyType, options.Now = p.opts.KeyType, p.opts.Now
	return certs.NewCA(options)
}

// checkNewCA returns an error if the new CA cannot replace the old one. In a cluster, a CA whose
// key is elsewhere can be replaced only by another such CA, so that a key is never stored where
// there was none.
func (p *procedure) checkNewCA(leaf *x509.Certificate) error {
	path := p.opts.store.Path(p.caDir)
	if s, ok := p.opts.store.(*secrets); ok && !s.hasCAKey() && p.opts.NewCA == nil {
		return &certs.RefusedError{Path: path,
			Reason: "expected the CA's key, found none; if a signer holds the key, name the new CA's certificate and " +
				"its signer with --new-ca and --signer"}
	}
	old, err := certs.ReadCertificate(p.opts.store, p.caDir)
	if err != nil || p.opts.NewCA == nil {
		return err
	}
	if p.opts.NewCA.Equal(old) {
		return &certs.RefusedError{Path: path, Reason: "expected a CA other than that of --new-ca"}
	}
	if err := certs.CheckSigner(p.opts.NewCA, leaf, p.opts.Now()); err != nil {
		return &certs.RefusedError{Path: fmt.Sprintf("--new-ca (%s)", p.opts.NewCA.Subject), Reason: err.Error()}
	}
	return nil
}

// readCA returns the existing CA, which can sign.
func (p *procedure) readCA() (*certs.CA, error) {
	if p.opts.Signer != nil && p.caDir == certs.ServingCADir {
		cert, err := certs.ReadCertificate(p.opts.store, p.caDir)
		if err != nil {
			return nil, err
		}
		return certs.RemoteCA(cert, p.opts.Signer, p.opts.Now)
	}
	files, err := p.opts.store.Read(p.caDir)
	if err != nil {
		return nil, err
	}
	if _, ok := files[certs.KeyFile]; !ok {
		remedy := "have the certificate signed where the key is stored, with certgen request and certgen request " +
			"accept, or rotate the CA"
		if d, ok := p.opts.store.(directory); !ok {
			remedy = "name the signer that holds the key with --signer"
		} else if d.usesKubeadmFiles(p.caDir) {
			remedy = "have the certificate signed where the key is stored, as kubeadm documents for an external CA"
		}
		return nil, &certs.RefusedError{Path: p.opts.store.Path(p.caDir, certs.KeyFile),
			Reason: "expected the CA's key, found none; " + remedy}
	}
	ca, err := certs.ParseCA(files[certs.CertFile].Data, files[certs.KeyFile].Data, p.opts.Now)
	if err != nil {
		return nil, &certs.RefusedError{Path: p.opts.store.Path(p.caDir), Reason: err.Error()}
	}
	return ca, nil
}

// load reads the key pairs that stage stored.
func (p *procedure) load() error {
	read, store := &pairs{}, p.opts.store
	var err error
	if read.oldCA, err = certs.ReadCertificate(store, p.kept(p.caDir)); err != nil {
		return err
	}
	if p.makeCA != nil {
		if read.nextCA, err = certs.ReadCertificate(store, p.staged(p.caDir)); err != nil {
			return err
		}
	}
	if read.next, err = certs.ReadPair(store, p.staged(p.leafName(0))); err != nil {
		return err
	}
	for i := range p.leafDirs {
		pair, err := certs.ReadPair(store, p.kept(p.leafName(i)))
		if err != nil {
			return err
		}
		files, err := store.Read(p.kept(p.leafName(i)))
		if err != nil {
			return err
		}
		var bundle certs.Bundle
		if file, ok := files[certs.BundleFile]; ok {
			if bundle, err = certs.ParseBundle(file.Data); err != nil {
				return err
			}
		}
		read.old, read.bundles = append(read.old, pair), append(read.bundles, bundle)
	}
	p.pairs = read
	return nil
}

// loaded wraps do, unless it is nil, to read the key pairs first if they are not read yet. A
// failure to read them is permanent.
func (p *procedure) loaded(do func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if do == nil {
			return nil
		}
		if p.pairs == nil {
			if err := p.load(); err != nil {
				return &stopError{fmt.Errorf(
					"%w; restore it from a backup; or, to give up this rotation, remove %s: the certificates in use "+
						"and the trust in a new CA remain", err, p.opts.store.Path(p.set))}
			}
		}
		return do(ctx)
	}
}

// unstage removes the result of stage, which nothing uses any more.
func (p *procedure) unstage(context.Context) error {
	remove := []string{p.staged(""), p.kept("")}
	_, adopted := p.adoptable()
	for _, set := range adopted { // left by an interrupted adoption
		remove = append(remove, draftDir(set))
	}
	for _, set := range remove {
		if err := p.opts.store.Remove(set); err != nil {
			return err
		}
		p.opts.afterWrite()
	}
	return nil
}

// finish moves the old CA, with its key if that exists here, next to the new one, as certgen
// init does. It removes all other copies.
func (p *procedure) finish(ctx context.Context) error {
	if p.makeCA != nil {
		if err := p.opts.store.Move(p.kept(p.caDir), certs.RetiredDir(p.caDir, p.state.StartedAt)); err != nil {
			return err
		}
		p.opts.afterWrite()
	}
	return p.unstage(ctx)
}

// bundleOf returns the content of ca.crt in the i-th leaf's set at some step. The caBundles
// contain that of the first leaf.
type bundleOf func(i int) certs.Bundle

// currentLeaf returns the leaf that is now in the i-th set: another process, such as certgen
// init, may have renewed it since the rotation began. If it cannot be read, currentLeaf returns
// the old one.
func (p *procedure) currentLeaf(i int) *certs.KeyPair {
	if pair, err := certs.ReadPair(p.opts.store, p.leafDirs[i]); err == nil {
		return pair
	}
	return p.old[i]
}

// previousLeaf returns the leaf for a rollback: the old one, or another leaf of the old CA that
// replaced it.
func (p *procedure) previousLeaf(i int) *certs.KeyPair {
	if live := p.currentLeaf(i); signedBy(live.Certificate, p.oldCA) && !live.Certificate.Equal(p.next.Certificate) {
		return live
	}
	return p.old[i]
}

// currentBundle returns the content of ca.crt next to the current leaf. Other processes may add
// CAs to it.
func (p *procedure) currentBundle(i int) certs.Bundle {
	if files, err := p.opts.store.Read(p.leafDirs[i], certs.BundleFile); err == nil {
		if bundle, err := certs.ParseBundle(files[certs.BundleFile].Data); err == nil {
			return bundle
		}
	}
	return p.bundles[i]
}

// oldBundle returns currentBundle with the old CA and without the new one.
func (p *procedure) oldBundle(i int) certs.Bundle {
	return p.currentBundle(i).Without(p.nextCA).Merge(p.opts.Now(), p.oldCA)
}

// bothBundle returns currentBundle with both CAs.
func (p *procedure) bothBundle(i int) certs.Bundle {
	return p.currentBundle(i).Merge(p.opts.Now(), p.oldCA, p.nextCA)
}

// newBundle returns bothBundle without the old CA.
func (p *procedure) newBundle(i int) certs.Bundle { return p.bothBundle(i).Without(p.oldCA) }

// writeNew puts the new leaf and, if it changes, its CA into use.
func (p *procedure) writeNew(bundle bundleOf) error {
	return p.writeLeaves(p.staged(p.caDir), bundle, func(int) *certs.KeyPair { return p.next })
}

// writeOld puts the old leaf and its CA back into use.
func (p *procedure) writeOld(bundle bundleOf) error {
	return p.writeLeaves(p.kept(p.caDir), bundle, p.previousLeaf)
}

// rewrite writes the current leaf again in order to change ca.crt next to it.
func (p *procedure) rewrite(bundle bundleOf) error { return p.writeLeaves("", bundle, p.currentLeaf) }

// writeLeaves writes certificate, key and bundle of each set in one step. If a CA is given and
// the rotation replaces it, writeLeaves writes the CA first: a certgen init that runs in between
// would sign with it.
func (p *procedure) writeLeaves(ca string, bundle bundleOf, leaf func(i int) *certs.KeyPair) error {
	if err := p.checkIssuers(); err != nil {
		return err
	}
	if p.makeCA != nil && ca != "" {
		if err := p.copyPair(ca, p.caDir); err != nil {
			return err
		}
	}
	for i, dir := range p.leafDirs {
		pair := leaf(i)
		// The leaf expired while the rotation was blocked. Rewriting the current leaf to change
		// ca.crt does no harm.
		if cert := pair.Certificate; p.opts.Now().After(cert.NotAfter) && !cert.Equal(p.currentLeaf(i).Certificate) {
			return fmt.Errorf("the previous certificate (sha256:%.16s) expired at %s: complete the rotation",
				certs.Fingerprint(cert), cert.NotAfter.UTC().Format(time.RFC3339))
		}
		if err := p.writeLeaf(i, dir, pair, bundle(i)); err != nil {
			return err
		}
	}
	return nil
}

// writeLeaf writes a leaf with the given CAs. It restores the old leaf with its original CAs
// byte for byte.
func (p *procedure) writeLeaf(i int, dir string, leaf *certs.KeyPair, cas certs.Bundle) error {
	had := p.bundles[i].Merge(p.opts.Now(), p.oldCA) // without expired ones, as in cas
	if leaf.Certificate.Equal(p.old[i].Certificate) && len(cas.Without(had...)) == 0 && len(had.Without(cas...)) == 0 {
		return p.copyPair(p.kept(p.leafName(i)), dir)
	}
	return p.write(leaf, dir, issuerFirst(cas, leaf.Certificate))
}

// restoreOld restores the leaves and the ca.crt next to them.
func (p *procedure) restoreOld(context.Context) error {
	return p.writeLeaves("", p.oldBundle, p.previousLeaf)
}

// checkUnchanged returns an error if the new leaf would replace one for which it was not issued,
// because that may have other names.
func (p *procedure) checkUnchanged() error {
	for i, dir := range p.leafDirs {
		if live := p.currentLeaf(i).Certificate; !live.Equal(p.old[i].Certificate) && !live.Equal(p.next.Certificate) {
			return fmt.Errorf("%s contains a certificate (sha256:%.16s) that was written after the rotation started, "+
				"for example by certgen init; "+
				"reverse the rotation with --abort, and start it again", p.opts.store.Path(dir), certs.Fingerprint(live))
		}
	}
	return nil
}

// checkIssuers returns an error if a leaf was signed by neither the old nor the new CA. Another
// process then replaced that CA, and clients may no longer trust the old one. Unreadable leaves
// are overwritten.
func (p *procedure) checkIssuers() error {
	var errs []error
	for _, dir := range p.leafDirs {
		live, err := certs.ReadCertificate(p.opts.store, dir)
		if err == nil && !signedBy(live, p.oldCA) && !signedBy(live, p.nextCA) {
			errs = append(errs, fmt.Errorf(
				"%s contains a certificate (sha256:%.16s) of a CA that is not part of this rotation: another certgen "+
					"or another client replaced it; "+
					"to keep it and give up this rotation, remove %s", p.opts.store.Path(dir), certs.Fingerprint(live),
				p.opts.store.Path(p.set)))
		}
	}
	return errors.Join(errs...)
}

// issuerFirst moves the CA that signed leaf to the front and keeps the order of the others.
// kubeadm uses the first certificate in front-proxy-ca.crt as the one for its key, and signs and
// checks front-proxy-client.crt with it.
func issuerFirst(bundle certs.Bundle, leaf *x509.Certificate) certs.Bundle {
	others := slices.DeleteFunc(slices.Clone(bundle), func(ca *x509.Certificate) bool { return signedBy(leaf, ca) })
	return append(bundle.Without(others...), others...)
}

// signedBy reports whether ca signed leaf. It returns false if ca is nil.
func signedBy(leaf, ca *x509.Certificate) bool {
	return ca != nil && bytes.Equal(leaf.RawIssuer, ca.RawSubject) && leaf.CheckSignatureFrom(ca) == nil
}

// write replaces the key pair and bundle of a set in one step. copyPair replaces them with those
// of another set.
func (p *procedure) write(pair *certs.KeyPair, set string, bundle certs.Bundle) error {
	defer p.opts.afterWrite()
	return p.opts.store.Write(set, pair.Files(bundle))
}

func (p *procedure) copyPair(from, to string, without ...string) error {
	if _, err := certs.ReadCertificate(p.opts.store, from); err != nil {
		return err
	}
	files, err := p.opts.store.Read(from)
	if err != nil {
		return err
	}
	for _, file := range without {
		delete(files, file)
	}
	defer p.opts.afterWrite()
	return p.opts.store.Write(to, files)
}
