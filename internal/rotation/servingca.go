// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"context"
	"crypto/x509"
	"fmt"

	"example.com/extension-apiserver/internal/certs"
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
			about:    "put both CAs into the caBundle of each APIService and into ca.crt; seen when each kube-apiserver has each changed APIService and gets answers",
			do:       func(ctx context.Context) error { return p.applyAndWrite(ctx, p.bothTrusted, p.rewriteOld) },
			observed: func(ctx context.Context) error { return p.caBundlesSeen(ctx, p.bothTrusted) },
			undo:     func(ctx context.Context) error { return p.applyAndWrite(ctx, p.keptBundle, p.rewriteOld) },
			undone:   func(ctx context.Context) error { return p.caBundlesSeen(ctx, p.keptBundle) },
		},
		{
			name: "switch", kind: Identity, hold: true,
			about: "check the new certificate against the caBundle of each APIService and write it, and the new CA; seen when every endpoint of " +
				"the Service serves it and each kube-apiserver gets answers",
			do:       func(ctx context.Context) error { return p.switchServing(ctx, p.bothTrusted) },
			observed: func(ctx context.Context) error { return p.servedEverywhere(ctx, p.nextLeaf) },
			undo:     func(context.Context) error { return p.writeOld(p.bothTrusted) },
			undone:   func(ctx context.Context) error { return p.servedEverywhere(ctx, p.currentLeaf) },
		},
		{
			name: "distrust", kind: Distrust,
			about: "check once more that every endpoint serves the new certificate, and leave the new CA alone in each caBundle and in ca.crt; seen as before. " +
				"When a kube-apiserver gets no answer then, both CAs are put back at once",
			do: p.distrustOldServingCA, observed: p.oldServingCADistrusted,
			undo: func(ctx context.Context) error { return p.applyAndWrite(ctx, p.bothTrusted, p.writeNew) },
		},
		finish,
	}
}

// applyAndWrite changes the trust of the cluster, and ca.crt when that is done.
func (p *procedure) applyAndWrite(ctx context.Context, read bundleOf, write func(bundleOf) error) error {
	bundle, err := read(0)
	if err != nil {
		return err
	}
	if _, err := p.opts.Observer.ApplyCABundle(ctx, p.opts.Service, bundle); err != nil {
		return err
	}
	return write(read)
}

func (p *procedure) newTrusted(int) (certs.Bundle, error) {
	next, err := p.nextCA()
	return certs.Bundle{next}, err
}

func (p *procedure) distrustOldServingCA(ctx context.Context) error {
	if err := p.servedEverywhere(ctx, p.nextLeaf); err != nil {
		return err
	}
	return p.applyAndWrite(ctx, p.newTrusted, p.writeNew)
}

// oldServingCADistrusted does not wait when there are no answers: users have none then.
func (p *procedure) oldServingCADistrusted(ctx context.Context) error {
	if err := p.servedEverywhere(ctx, p.nextLeaf); err != nil {
		return &stopError{err}
	}
	return p.caBundlesSeen(ctx, p.newTrusted)
}

// caBundlesSeen returns nil when each APIService has exactly these CAs, in whatever order, and each kube-apiserver has
// that state of it and gets answers.
func (p *procedure) caBundlesSeen(ctx context.Context, read bundleOf) error {
	want, err := read(0)
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
	for _, a := range apiServices {
		if !sameSet(a.Spec.CABundle, want) {
			return fmt.Errorf("caBundle of APIService %s does not hold exactly the %d CAs that were applied; does something else write it?", a.Name, len(want))
		}
		for _, k := range kubeAPIServers {
			if err := p.opts.Observer.SeenBy(ctx, k, a); err != nil {
				return fmt.Errorf("APIService %s at %s: expected its resourceVersion %s: %w", a.Name, k, a.ResourceVersion, err)
			}
		}
	}
	return p.answersEverywhere(ctx, p.opts.Service)
}
