// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"time"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/cluster"
	"example.com/extension-apiserver/internal/frontproxy"
)

// frontProxyCA replaces the CA of the front proxy. First, every kube-apiserver publishes both
// CAs. Then each API server is checked to accept a certificate of the new CA. Then
// kube-apiserver's key pair changes. Last, the old CA is removed.
func (p *procedure) frontProxyCA() {
	p.proxyClient()
	p.makeCA = func(*x509.Certificate) certs.CAOptions {
		return certs.CAOptions{Name: certs.FrontProxyCADir, Usage: x509.ExtKeyUsageClientAuth}
	}
	p.steps = []step{
		p.stageStep("issue a new CA and a client certificate with the same name; neither is trusted or used yet"),
		{
			name: "trust", kind: Trust, hold: true,
			about: "write both CAs to ca.crt of each kube-apiserver (its --requestheader-client-ca-file); observed " +
				"when the ConfigMap " +
				"kube-system/extension-apiserver-authentication contains both and every endpoint of every aggregated " +
				"API accepts a certificate of the new CA",
			do:       func(context.Context) error { return p.rewrite(p.bothBundle) },
			observed: p.bothProxiesAccepted,
			undo:     p.restoreOld, // of the files; undone removes the new CA from the ConfigMap
			undone:   p.nextProxyDistrusted,
		},
		p.switchProxyStep(p.bothProxiesAccepted, p.bothBundle,
			func(context.Context) error { return p.writeOld(p.bothBundle) }),
		{
			name: "distrust-files", kind: Distrust,
			about: "remove the old CA from ca.crt of each kube-apiserver; observed when every aggregated API responds to " +
				"each kube-apiserver",
			needs:    p.nextProxyInUse,
			do:       func(context.Context) error { return p.writeNew(p.newBundle) },
			observed: stopping(p.nextProxyResponds), // do not wait without responses: users get none either
			undo:     func(context.Context) error { return p.writeNew(p.bothBundle) },
		},
		{
			name: "distrust-configmap", kind: Distrust,
			about: "remove the old CA from the ConfigMap, in place, which kube-apiserver never does; observed when it " +
				"stays removed, every endpoint " +
				"refuses a certificate of the old CA and accepts one of the new CA, and every aggregated API responds",
			needs:    p.nextProxyInUse,
			observed: p.oldProxyDistrusted, // removes it, and again if it reappears
			// Otherwise kube-apiserver would restore it only the next time that it reads its
			// file.
			undo: func(ctx context.Context) error {
				return p.opts.Observer.ChangeFrontProxyCAs(ctx, certs.Bundle{p.oldCA}, nil)
			},
		},
		p.finishStep(),
	}
}

func (p *procedure) bothProxiesAccepted(ctx context.Context) error {
	found, err := p.publishedCAs(ctx)
	if err != nil {
		return err
	}
	for i, dir := range p.leafDirs {
		for _, ca := range p.bothBundle(i) {
			if !found.Contains(ca) {
				return fmt.Errorf("%s: expected the CA %s in %s; check that a kube-apiserver reads %s "+
					"(--requestheader-client-ca-file)",
					cluster.TrustObject, ca.Subject, frontproxy.CAKey, p.opts.store.Path(dir, certs.BundleFile))
			}
		}
	}
	return p.probe(ctx, p.next, cluster.Accepted)
}

func (p *procedure) publishedCAs(ctx context.Context) (certs.Bundle, error) {
	cm, err := p.opts.Observer.TrustConfigMap(ctx)
	if err != nil {
		return nil, err
	}
	bundle, err := certs.ParseBundle([]byte(cm.Data[frontproxy.CAKey]))
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", cluster.TrustObject, frontproxy.CAKey, err)
	}
	return bundle, nil
}

// nextProxyDistrusted removes the new CA from the ConfigMap again. kube-apiserver would leave it
// there until it expires.
func (p *procedure) nextProxyDistrusted(ctx context.Context) error {
	if err := p.takenOut(ctx, p.nextCA); err != nil {
		return err
	}
	return p.waitUntilSettled(p.nextCA)
}

// takenOut removes a CA from the ConfigMap whenever it is in there. A kube-apiserver that has
// not reread its file yet restores the CA within a minute.
func (p *procedure) takenOut(ctx context.Context, ca *x509.Certificate) error {
	published, err := p.publishedCAs(ctx)
	if err != nil || !published.Contains(ca) {
		return err
	}
	p.settled = time.Time{}
	return errors.Join(p.opts.Observer.ChangeFrontProxyCAs(ctx, nil, certs.Bundle{ca}),
		fmt.Errorf("%s contained the CA %s (sha256:%.16s) again, after it was removed from %s; "+
			"a kube-apiserver adds it while its --requestheader-client-ca-file contains it: check that each reads "+
			"one of %s",
			cluster.TrustObject, ca.Subject, certs.Fingerprint(ca), frontproxy.CAKey,
			strings.Join(p.paths(certs.BundleFile), ", ")))
}

// waitUntilSettled returns nil if the ConfigMap has been without the CA for long enough.
func (p *procedure) waitUntilSettled(ca *x509.Certificate) error {
	if p.settled.IsZero() {
		p.settled = p.opts.Now()
	}
	if left := p.settled.Add(p.opts.Settle).Sub(p.opts.Now()); left > 0 {
		return fmt.Errorf("wait until the CA %s stays removed from the ConfigMap for %s",
			ca.Subject, p.opts.Settle)
	}
	return nil
}

func (p *procedure) oldProxyDistrusted(ctx context.Context) error {
	if err := p.takenOut(ctx, p.oldCA); err != nil {
		return err
	}
	if err := stopping(p.nextProxyResponds)(ctx); err != nil {
		return err
	}
	if err := p.probe(ctx, p.next, cluster.Accepted); err != nil {
		return err
	}
	if err := p.probe(ctx, p.old[0], cluster.NotTrusted); err != nil {
		return err
	}
	return p.waitUntilSettled(p.oldCA)
}
