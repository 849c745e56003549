// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"context"
	"crypto/x509"
	"fmt"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/cluster/apply"
)

// servingCA replaces the serving CA: every caBundle trusts both, then the leaf changes, then every caBundle trusts the
// new one only.
func (p *procedure) servingCA() {
	p.serving()
	p.newCA = true
	p.makeCA = func(_, leaf *x509.Certificate) certs.CAOptions {
		return certs.CAOptions{
			Name: p.opts.Service.Name + "-serving-ca", Usage: x509.ExtKeyUsageServerAuth, PermittedDNS: leaf.DNSNames, PermittedIPs: ipTexts(leaf),
		}
	}
	stage, finish := p.stageStep("make a new CA and a serving certificate of it, which nobody trusts or serves yet"), p.finishStep()
	p.steps = []step{
		stage,
		{
			name: "trust", kind: Trust, hold: true,
			about:    "put the new CA into the caBundle of each APIService, beside those that are there, and into ca.crt; seen when each kube-apiserver has each changed APIService and gets answers",
			do:       func(ctx context.Context) error { return p.trust(ctx, p.bothTrusted, nil, p.rewriteOld) },
			observed: func(ctx context.Context) error { return p.caBundlesSeen(ctx, p.bothTrusted, nil) },
			undo:     p.distrustNew,
			undone:   func(ctx context.Context) error { return p.caBundlesSeen(ctx, noMore, p.nextCA) },
		},
		{
			name: "switch", kind: Identity, hold: true,
			about: "check the new certificate against the caBundle of each APIService and write it, and the new CA; seen when every endpoint of " +
				"the Service serves it and each kube-apiserver gets answers",
			needs:    func(ctx context.Context) error { return p.caBundlesSeen(ctx, p.nextTrusted, nil) },
			restore:  p.trustNextAgain,
			do:       func(ctx context.Context) error { return p.switchServing(ctx, p.bothTrusted) },
			observed: func(ctx context.Context) error { return p.servedEverywhere(ctx, p.nextLeaf) },
			undo:     p.switchBack,
			undone:   func(ctx context.Context) error { return p.servedEverywhere(ctx, p.currentLeaf) },
		},
		{
			name: "distrust", kind: Distrust,
			about: "check once more that every endpoint serves the new certificate, and take the old CA out of each caBundle and of ca.crt; seen as before. " +
				"When a kube-apiserver gets no answer then, both CAs are put back at once",
			do: p.distrustOldServingCA, observed: p.oldServingCADistrusted,
			undo: func(ctx context.Context) error { return p.trust(ctx, p.bothTrusted, nil, p.writeNew) },
		},
		finish,
	}
}

// noMore is for a change that only takes out.
func noMore(int) (certs.Bundle, error) { return nil, nil }

// distrustNew leaves the old CA alone: where somebody took it out, it stays out.
func (p *procedure) distrustNew(ctx context.Context) error {
	return p.trust(ctx, noMore, p.nextCA, func(bundleOf) error { return p.rewriteOld(p.keptBundle) })
}

// trust changes the caBundles, and ca.crt when that is done. What others put there stays, unless it is the CA to remove.
func (p *procedure) trust(ctx context.Context, read bundleOf, remove func() (*x509.Certificate, error), write func(bundleOf) error) error {
	add, out, err := p.change(read, remove)
	if err != nil {
		return err
	}
	if err := p.opts.Observer.ChangeCABundle(ctx, p.opts.Service, add, out); err != nil {
		return err
	}
	return write(read)
}

func (p *procedure) change(read bundleOf, remove func() (*x509.Certificate, error)) (add, out certs.Bundle, err error) {
	if add, err = read(0); err != nil || remove == nil {
		return add, nil, err
	}
	ca, err := remove()
	return add, certs.Bundle{ca}, err
}

func (p *procedure) distrustOldServingCA(ctx context.Context) error {
	if err := p.servedEverywhere(ctx, p.nextLeaf); err != nil {
		return err
	}
	return p.trust(ctx, p.onlyNewTrusted, p.oldCA, p.writeNew)
}

// trustNextAgain puts the new CA back where somebody took it out while servers have a certificate of it. The old one is not put back: another
// rotation may have distrusted it.
func (p *procedure) trustNextAgain(ctx context.Context) error {
	next, err := p.nextTrusted(0)
	if err != nil {
		return err
	}
	return p.opts.Observer.ChangeCABundle(ctx, p.opts.Service, next, nil)
}

func (p *procedure) nextTrusted(int) (certs.Bundle, error) {
	next, err := p.nextCA()
	return certs.Bundle{next}, err
}

// switchBack puts the old leaf back in use, unless a live caBundle does not verify it any more.
func (p *procedure) switchBack(ctx context.Context) error {
	if err := p.checkCABundles(ctx, p.currentLeaf); err != nil {
		return err
	}
	return p.writeOld(p.bothTrusted)
}

// oldServingCADistrusted does not wait when there are no answers: users have none then.
func (p *procedure) oldServingCADistrusted(ctx context.Context) error {
	if err := p.servedEverywhere(ctx, p.nextLeaf); err != nil {
		return &stopError{err}
	}
	return p.caBundlesSeen(ctx, p.onlyNewTrusted, p.oldCA)
}

// caBundlesSeen returns nil when each APIService has these CAs and not the one to remove, and each kube-apiserver has that state of it and
// gets answers.
func (p *procedure) caBundlesSeen(ctx context.Context, read bundleOf, remove func() (*x509.Certificate, error)) error {
	add, out, err := p.change(read, remove)
	if err != nil {
		return &stopError{err}
	}
	apiServices, err := p.opts.Observer.APIServices(ctx, p.opts.Service)
	if err != nil {
		return err
	}
	kubeAPIServers, err := p.opts.Observer.KubeAPIServers(ctx)
	if err != nil {
		return err
	}
	if len(apiServices) == 0 {
		return fmt.Errorf("expected an APIService whose backend is %s, found none", p.opts.Service)
	}
	for _, a := range apiServices {
		if bundle, err := certs.ParseBundle(a.Spec.CABundle); err != nil || !apply.NeedsNoChange(bundle, add, out) {
			return fmt.Errorf("caBundle of APIService %s does not hold the %d CAs that were applied, or still one that was taken out; does something else write it?",
				a.Name, len(add))
		}
		for _, k := range kubeAPIServers {
			if err := p.opts.Observer.SeenBy(ctx, k, a); err != nil {
				return fmt.Errorf("APIService %s at %s: expected its resourceVersion %s: %w", a.Name, k, a.ResourceVersion, err)
			}
		}
	}
	return p.answersEverywhere(ctx, p.opts.Service)
}
