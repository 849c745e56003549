// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"

	"k8s.io/client-go/util/retry"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/cluster"
	"example.com/extension-apiserver/internal/cluster/apply"
)

// servingCA replaces the serving CA. First, every caBundle trusts both CAs. Then the leaf
// changes. Last, every caBundle trusts only the new CA.
func (p *procedure) servingCA() {
	p.serving()
	p.makeCA = func(leaf *x509.Certificate) certs.CAOptions {
		return certs.CAOptions{
			Name: p.opts.Service.Name + "-serving-ca", Usage: x509.ExtKeyUsageServerAuth, PermittedDNS: leaf.DNSNames,
			PermittedIPs: certs.Describe(leaf, p.opts.Now()).IPAddresses,
		}
	}
	p.steps = []step{
		p.stageStep("issue a new CA and a serving certificate; neither is trusted or served yet"),
		{
			name: "trust", kind: Trust, hold: true,
			about: "add the new CA to the caBundle of each APIService and to ca.crt; observed when each " +
				"kube-apiserver has each changed APIService and the API responds to it",
			// An outdated copy of the directory does not contain the served certificate, and its
			// CAs may be distrusted.
			needs: p.liveServed,
			// Neither do nor undo restores the old CA: if something removed it, it stays
			// removed.
			do: func(ctx context.Context) error {
				return p.changeTrust(ctx, certs.Bundle{p.nextCA}, nil, p.rewrite, p.bothBundle)
			},
			observed: func(ctx context.Context) error {
				return p.caBundlesSeen(ctx,
					certs.Bundle{p.oldCA, p.nextCA}, nil)
			},
			undo: func(ctx context.Context) error {
				return p.changeTrust(ctx, nil, certs.Bundle{p.nextCA}, p.rewrite, p.oldBundle)
			},
			undone: func(ctx context.Context) error { return p.caBundlesSeen(ctx, nil, certs.Bundle{p.nextCA}) },
		},
		{
			name: "switch", kind: Identity, hold: true,
			about: "verify the new certificate with the caBundle of each APIService, and write it and the new CA; " +
				"observed when every endpoint of " +
				"the Service serves it and the API responds to each kube-apiserver",
			needs: p.trustingNext(func(ctx context.Context) error {
				return p.caBundlesSeen(ctx,
					certs.Bundle{p.nextCA}, nil)
			}),
			do:       func(ctx context.Context) error { return p.switchToNext(ctx, p.bothBundle) },
			observed: p.trustingNext(p.nextServed),
			undo: func(ctx context.Context) error {
				return p.switchLeaf(ctx, p.previousLeaf(0), p.writeOld, p.bothBundle)
			},
			undone:     p.liveServed,
			undoReason: p.newCARemoved,
		},
		{
			name: "distrust", kind: Distrust,
			about: "check again that every endpoint serves the new certificate, and remove the old CA from each " +
				"caBundle and from ca.crt; observed as in trust and switch. " +
				"If the API does not respond to a kube-apiserver, both CAs are restored at once",
			do: p.distrustOldServingCA, observed: p.oldServingCADistrusted,
			undo: func(ctx context.Context) error {
				err := p.opts.Observer.ChangeCABundle(ctx, p.opts.Service, certs.Bundle{p.oldCA, p.nextCA}, nil)
				if err != nil && !p.oldTrusted(ctx) { // if another manager maintains a caBundle
					return err
				}
				return p.writeNew(p.bothBundle)
			},
		},
		p.finishStep(),
	}
}

// changeTrust changes the caBundles, and then ca.crt. It keeps CAs of other owners, except for
// the CA to remove.
func (p *procedure) changeTrust(ctx context.Context, add, remove certs.Bundle, write func(bundleOf) error,
	bundle bundleOf) error {
	if err := p.opts.Observer.ChangeCABundle(ctx, p.opts.Service, add, remove); err != nil {
		return err
	}
	return write(bundle)
}

func (p *procedure) distrustOldServingCA(ctx context.Context) error {
	if err := p.nextServed(ctx); err != nil {
		return err
	}
	return p.changeTrust(ctx, certs.Bundle{p.nextCA}, certs.Bundle{p.oldCA}, p.writeNew, p.newBundle)
}

// trustingNext wraps seen to restore the new CA whenever seen returns an error, which it still
// returns: something may have removed the CA while servers have a certificate of it. It does not
// restore the old CA, because another rotation may have distrusted it. If another manager owns a
// caBundle meanwhile, the error is permanent.
func (p *procedure) trustingNext(seen func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		missing := seen(ctx)
		if missing == nil {
			return nil
		}
		err := p.opts.Observer.ChangeCABundle(ctx, p.opts.Service, certs.Bundle{p.nextCA}, nil)
		if _, owned := errors.AsType[*cluster.OwnedError](err); owned {
			return &stopError{fmt.Errorf("%v; add the new CA again: %w", missing, err)} //nolint:errorlint // waiting does not help, whatever is missing
		} else if err != nil {
			return fmt.Errorf("%w; add the new CA again: %w", missing, err)
		}
		return missing
	}
}

// newCARemoved returns the owner of a caBundle that lacks the new CA, for example a GitOps
// controller that reverted it. certgen may not restore the CA, and users get no responses while
// servers have a certificate of it.
func (p *procedure) newCARemoved(ctx context.Context) (taken error) {
	if p.pairs == nil { // they are damaged
		return nil
	}
	_ = retry.OnError(storeBackoff, isTransient, func() error {
		apiServices, err := p.apiServices(ctx)
		for _, a := range apiServices {
			owned := cmp.Or(cluster.InjectedBy(a), cluster.OwnedByOthers(a))
			if owned != nil && !certs.LenientBundle(a.Spec.CABundle).Contains(p.nextCA) {
				taken = owned
			}
		}
		return err
	})
	return taken
}

// oldTrusted reports whether all caBundles contain the old CA.
func (p *procedure) oldTrusted(ctx context.Context) bool {
	apiServices, err := p.apiServices(ctx)
	return err == nil && !slices.ContainsFunc(apiServices, func(a apiregistrationv1.APIService) bool {
		return !certs.LenientBundle(a.Spec.CABundle).Contains(p.oldCA)
	})
}

// oldServingCADistrusted does not wait if there are no responses, because users get none either.
func (p *procedure) oldServingCADistrusted(ctx context.Context) error {
	if err := stopping(p.nextServed)(ctx); err != nil {
		return err
	}
	return p.caBundlesSeen(ctx, certs.Bundle{p.nextCA}, certs.Bundle{p.oldCA})
}

// caBundlesSeen returns nil if all APIServices contain the CAs in add and not those in remove,
// and all kube-apiservers have that version of them and get responses.
func (p *procedure) caBundlesSeen(ctx context.Context, add, remove certs.Bundle) error {
	apiServices, err := p.apiServices(ctx)
	if err != nil {
		return err
	}
	kubeAPIServers, err := p.opts.Observer.KubeAPIServers(ctx)
	if err != nil {
		return err
	}
	for _, a := range apiServices {
		trustsAll := a.Spec.InsecureSkipTLSVerify && len(add) == 0
		if bundle, err := certs.ParseBundle(a.Spec.CABundle); !trustsAll &&
			(err != nil || !apply.NeedsNoChange(bundle, add, remove)) {
			return fmt.Errorf("caBundle of APIService %s does not contain the %d CAs that were applied, or still contains "+
				"one that was removed; check for other writers",
				a.Name, len(add))
		}
		for _, k := range kubeAPIServers {
			if err := p.opts.Observer.CheckObserved(ctx, k, a); err != nil {
				return fmt.Errorf("APIService %s at %s: expected resourceVersion %s: %w", a.Name, k,
					a.ResourceVersion, err)
			}
		}
	}
	return p.respondsEverywhere(ctx, p.opts.Service)
}
