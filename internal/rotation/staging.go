// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"context"
	"crypto/x509"
	"fmt"
	"path/filepath"
	"time"

	"example.com/extension-apiserver/internal/certs"
)

// procedure is what the steps of one rotation share. Its pairs are stored, so that a run that was cut short finds them again.
type procedure struct {
	opts      Options
	caDir     string   // name of the CA's set
	leafDirs  []string // and of the leaf's
	newCA     bool
	makeCA    func(old *x509.Certificate, leaf *x509.Certificate) certs.CAOptions
	issue     func(ca *certs.CA, old *x509.Certificate) (*certs.KeyPair, error)
	startedAt time.Time // of the rotation
	settled   settling
	// leftOut are the Services, NAMESPACE/NAME, whose APIs did not answer when the rotation began; unverified those of which was said that
	// their endpoints are not asked.
	leftOut    []string
	unverified map[string]bool
	// proxyUnseen is true when it was said that nothing tells which certificate the kube-apiservers show.
	proxyUnseen bool

	preflight func(context.Context) error
	steps     []step
}

func newProcedure(opts Options) (*procedure, error) {
	p := &procedure{opts: opts, unverified: map[string]bool{}}
	switch opts.Rotation {
	case Serving:
		p.serving()
	case ServingCA:
		p.servingCA()
	case ProxyClient:
		p.proxyClient()
	case FrontProxyCA:
		p.frontProxyCA()
	default:
		return nil, unknownRotation(opts.Rotation)
	}
	return p, nil
}

// staged and kept name the sets of the new pairs and of the copies of the old ones.
func staged(name string) string { return stagedSets + "/" + name }
func kept(name string) string   { return keptSets + "/" + name }

// leafName is the name under which the i-th leaf is staged and kept.
func (p *procedure) leafName(i int) string {
	name := filepath.Base(p.leafDirs[0])
	if i > 0 {
		name = fmt.Sprintf("%s-%d", name, i+1)
	}
	return name
}

// stage makes the new pairs and copies the old ones. It is done again only while nothing uses what it made before.
func (p *procedure) stage(context.Context) error {
	if err := p.copyPair(p.caDir, kept(p.caDir)); err != nil {
		return err
	}
	for i, dir := range p.leafDirs {
		if err := p.copyPair(dir, kept(p.leafName(i))); err != nil {
			return err
		}
	}
	old, err := p.certificate(kept(p.leafName(0)))
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
	return p.write(leaf, staged(p.leafName(0)), certs.Bundle{ca.Certificate})
}

// stageCA returns the CA of the new leaf.
func (p *procedure) stageCA(leaf *x509.Certificate) (*certs.CA, error) {
	if !p.newCA {
		return p.readCA(kept(p.caDir))
	}
	old, err := p.certificate(kept(p.caDir))
	if err != nil {
		return nil, err
	}
	options := p.makeCA(old, leaf)
	options.KeyType, options.Now = p.opts.KeyType, p.opts.Now
	ca, err := certs.NewCA(options)
	if err != nil {
		return nil, err
	}
	return ca, p.write(&ca.KeyPair, staged(p.caDir), nil)
}

// unstage removes what stage made. Nothing uses it any more.
func (p *procedure) unstage(context.Context) error {
	for _, sets := range []string{stagedSets, keptSets} {
		if err := p.opts.Store.Remove(sets); err != nil {
			return err
		}
		p.opts.wrote()
	}
	return nil
}

// finish moves the old CA, with its key if it is here, beside the new one, as certgen init does, and removes the rest.
func (p *procedure) finish(ctx context.Context) error {
	if p.newCA {
		if err := p.opts.Store.Move(kept(p.caDir), certs.AsideDir(p.caDir, p.startedAt)); err != nil {
			return err
		}
		p.opts.wrote()
	}
	return p.unstage(ctx)
}

func (p *procedure) stageStep(about string) step {
	return step{name: "stage", kind: Files, about: about, do: p.stage, undo: p.unstage}
}

func (p *procedure) finishStep() step {
	about := "remove the copies of the old pair"
	if p.newCA {
		about = "move the old CA to " + p.caDir + ".old-TIME, remove the copy of the old leaf"
	}
	return step{name: "finish", kind: Files, about: about, do: p.finish, final: true}
}

// oldCA and nextCA are the certificates; leaf is the new pair.
func (p *procedure) oldCA() (*x509.Certificate, error)  { return p.certificate(kept(p.caDir)) }
func (p *procedure) nextCA() (*x509.Certificate, error) { return p.certificate(staged(p.caDir)) }
func (p *procedure) nextLeaf() (*certs.KeyPair, error) {
	return certs.ReadPair(p.opts.Store, staged(p.leafName(0)))
}
func (p *procedure) currentLeaf() (*certs.KeyPair, error) {
	return certs.ReadPair(p.opts.Store, kept(p.leafName(0)))
}
func (p *procedure) certificate(set string) (*x509.Certificate, error) {
	return certs.ReadCertificate(p.opts.Store, set)
}
