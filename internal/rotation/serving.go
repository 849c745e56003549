// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/cluster"
	"example.com/extension-apiserver/internal/cluster/apply"
)

// serving replaces the serving certificate by one of the same CA. Nobody has to learn to trust anything.
func (p *procedure) serving() {
	p.caDir, p.leafDirs = certs.ServingCADir, []string{certs.ServingDir}
	p.issue = p.issueServing
	p.preflight = p.checkServing
	p.steps = []step{
		p.stageStep("issue a new serving certificate with the same CA; it is not served yet"),
		{
			name: "switch", kind: Identity, hold: true,
			about: "verify the new certificate with the caBundle of each APIService and write it; observed when every " +
				"endpoint of the Service " +
				"serves it and the API responds to each kube-apiserver",
			do:       func(ctx context.Context) error { return p.switchToNext(ctx, p.oldBundle) },
			observed: p.nextServed,
			undo:     p.restoreOld,
			undone:   p.liveServed,
		},
		p.finishStep(),
	}
}

func (p *procedure) nextServed(ctx context.Context) error {
	return p.servedEverywhere(ctx, p.next.Certificate)
}

// liveServed is for steps at which the next leaf is not in use, or no longer.
func (p *procedure) liveServed(ctx context.Context) error {
	return p.servedEverywhere(ctx, p.currentLeaf(0).Certificate)
}

func (p *procedure) switchToNext(ctx context.Context, bundle bundleOf) error {
	if err := p.checkUnchanged(); err != nil {
		return err
	}
	return p.switchLeaf(ctx, p.next, p.writeNew, bundle)
}

// switchLeaf puts a leaf in use, with that bundle beside it, unless a live caBundle does not verify it.
func (p *procedure) switchLeaf(ctx context.Context, leaf *certs.KeyPair, write func(bundleOf) error,
	bundle bundleOf) error {
	if p.opts.Observer != nil {
		if err := p.checkCABundles(ctx, leaf.Certificate); err != nil {
			return err
		}
	}
	return write(bundle)
}

// issueServing gives the new leaf the names of the old one.
func (p *procedure) issueServing(ca *certs.CA, old *x509.Certificate) (*certs.KeyPair, error) {
	return ca.IssueServing(certs.ServingOptions{
		DNSNames: old.DNSNames, IPs: certs.Describe(old, p.opts.Now()).IPAddresses, Lifetime: p.opts.Lifetime,
		KeyType: p.opts.KeyType,
	})
}

// checkServing refuses to begin where the end could not be observed, or would not be what the Service needs.
func (p *procedure) checkServing(ctx context.Context) error {
	const again = "issue a new one with certgen init in a directory, with certgen renew in Secrets"
	leaf, err := certs.ReadPair(p.opts.store, p.leafDirs[0])
	if errors.Is(err, fs.ErrNotExist) {
		return &certs.RefusedError{Path: p.opts.store.Path(p.leafDirs[0]),
			Reason: "expected the serving certificate and key, found none; " + again}
	}
	if err != nil {
		return err
	}
	// requests fail, and a new one can be served at once
	if p.opts.Observer != nil && p.opts.Now().After(leaf.Certificate.NotAfter) {
		return &certs.RefusedError{Path: p.opts.store.Path(p.leafDirs[0]),
			Reason: fmt.Sprintf("expected a valid certificate, found one that expired at %s; %s",
				leaf.Certificate.NotAfter.UTC().Format(time.RFC3339), again)}
	}
	if err := leaf.Certificate.VerifyHostname(p.opts.Service.ServerName()); err != nil {
		return &certs.RefusedError{Path: p.opts.store.Path(p.leafDirs[0]),
			Reason: fmt.Sprintf("expected a certificate for %s: %v; "+
				"name the Service of the certificate, or issue it again with certgen init",
				p.opts.Service.ServerName(), err)}
	}
	if p.opts.Observer == nil {
		return nil
	}
	if err := p.checkOwners(ctx); err != nil {
		return err
	}
	if p.makeCA != nil {
		if err := p.checkNewCA(leaf.Certificate); err != nil {
			return err
		}
		if err := p.opts.Observer.MayChangeTrust(ctx, p.opts.Service); err != nil {
			return err
		}
	}
	if s, ok := p.opts.store.(*secrets); ok {
		if err := s.writable(ctx); err != nil {
			return err
		}
	} else {
		p.noteUnknownKubeAPIServers(ctx) // the job in a cluster has no right to list Leases there
	}
	return p.servedEverywhere(ctx, leaf.Certificate)
}

// noteUnknownKubeAPIServers says where kube-apiservers cannot be asked one by one, as behind the load balancer of a
// managed cluster.
func (p *procedure) noteUnknownKubeAPIServers(ctx context.Context) {
	urls, err := p.opts.Observer.KubeAPIServers(ctx)
	if err != nil {
		return // it is asked for again
	}
	if live, err := p.opts.Observer.Identities(ctx); err == nil && live > len(urls) {
		p.note(fmt.Sprintf("there are %d kube-apiservers by their identity Leases, but URLs of only %d: %q; certgen "+
			"does not observe the others, and relies on the hold; "+
			"name each with --kube-apiserver if you can reach it", live, len(urls), urls))
	}
}

// checkOwners refuses where an injector keeps a caBundle, since it would bring its own CA back, and where another
// manager owns one that the rotation has to change. A new leaf of the same CA changes none: whom a rotation of the CA
// will meet is said.
func (p *procedure) checkOwners(ctx context.Context) error {
	apiServices, err := p.opts.Observer.APIServices(ctx, p.opts.Service)
	if err != nil {
		return err
	}
	var errs []error
	for _, a := range apiServices {
		owned := cmp.Or(cluster.InjectedBy(a), cluster.OwnedByOthers(a))
		switch {
		case owned == nil:
		case owned.Injector == "" && p.makeCA == nil:
			p.note(fmt.Sprintf("%s owns the caBundle of APIService %s, which %s does not change; before certgen "+
				"rotate %s, %s",
				owned.Owner, a.Name, p.opts.Rotation, ServingCA, cluster.TakeOver))
		default:
			errs = append(errs, owned)
		}
	}
	return errors.Join(errs...)
}

// note reports, once, what does not stop the rotation.
func (p *procedure) note(message string) {
	if !p.noted[message] {
		p.noted[message] = true
		p.event(nil, EventNote, message)
	}
}

// checkCABundles verifies a leaf as kube-aggregator will, against each live caBundle.
func (p *procedure) checkCABundles(ctx context.Context, leaf *x509.Certificate) error {
	apiServices, err := p.opts.Observer.APIServices(ctx, p.opts.Service)
	if err != nil {
		return err
	}
	for _, a := range apiServices {
		if a.Spec.InsecureSkipTLSVerify {
			continue
		}
		bundle, err := certs.ParseBundle(a.Spec.CABundle)
		if err != nil {
			return fmt.Errorf("caBundle of APIService %s: %w", a.Name, err)
		}
		if err := apply.VerifyServing(certs.Bundle{leaf}, bundle, p.opts.Service, p.opts.Now()); err != nil {
			return fmt.Errorf("caBundle of APIService %s: expected a CA that verifies the new "+
				"certificate: %w; "+
				"rotate serving-ca, or apply %s", a.Name, err, certs.BundleFile)
		}
	}
	return nil
}

// servedEverywhere returns nil when each endpoint of the Service serves the leaf, which the caBundles in force verify,
// and each kube-apiserver gets answers from each APIService. An endpoint that is not ready and does not answer is
// passed over: no request goes there, and its process reads its files when it starts. Where the CA is replaced it has
// to be seen that there is no process: one on a node that was cut off would come back with a certificate that nobody
// trusts any more.
func (p *procedure) servedEverywhere(ctx context.Context, leaf *x509.Certificate) error {
	apiServices, err := p.apiServices(ctx)
	if err != nil {
		return err
	}
	verifies := apiServices[max(0, slices.IndexFunc(apiServices,
		func(a apiregistrationv1.APIService) bool { return !a.Spec.InsecureSkipTLSVerify }))]
	trust, err := certs.ParseBundle(verifies.Spec.CABundle)
	if err != nil {
		return fmt.Errorf("caBundle of APIService %s: %w", verifies.Name, err)
	}
	served, err := p.opts.Observer.Served(ctx, p.opts.Service, trust)
	if err != nil {
		return err
	}
	if len(served) == 0 {
		return fmt.Errorf("expected endpoints of Service %s/%s, found none", p.opts.Service.Namespace,
			p.opts.Service.Name)
	}
	var cutOff error
	for _, s := range served {
		switch {
		case s.Leaf == nil && !s.Endpoint.Ready:
			if p.makeCA != nil && !isRefused(s.Verdict) { // the host, or its kubelet, says that nothing listens there
				cutOff = &waitError{fmt.Errorf(
					"endpoint %s is not ready and cannot be reached, so its certificate cannot be observed: %w%s; if "+
						"the node is gone, delete the pod",
					s.Endpoint.Address, s.Verdict, unreached)}
			}
		case s.Leaf == nil:
			return fmt.Errorf("endpoint %s: expected a certificate that the caBundle verifies: %w%s",
				s.Endpoint.Address, s.Verdict, unreached)
		case s.Verdict != nil:
			return fmt.Errorf("endpoint %s: expected a certificate that the caBundle verifies: %w",
				s.Endpoint.Address, s.Verdict)
		case !s.Leaf.Equal(leaf):
			return fmt.Errorf("endpoint %s serves the certificate sha256:%.16s, not sha256:%.16s; check that it reads "+
				"%s, and that this is not a subPath mount",
				s.Endpoint.Address, certs.Fingerprint(s.Leaf), certs.Fingerprint(leaf),
				p.opts.store.Path(p.leafDirs[0]))
		}
	}
	return cmp.Or(p.answersEverywhere(ctx, p.opts.Service), cutOff)
}

const unreached = "; if you cannot reach pods, use --port-forward or --endpoint"

// apiServices are those of the Service, at least one.
func (p *procedure) apiServices(ctx context.Context) ([]apiregistrationv1.APIService, error) {
	found, err := p.opts.Observer.APIServices(ctx, p.opts.Service)
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("expected APIServices of Service %s/%s, found none", p.opts.Service.Namespace,
			p.opts.Service.Name)
	}
	return found, err
}

// answersEverywhere returns nil when each kube-apiserver gets answers from each APIService of the Service.
func (p *procedure) answersEverywhere(ctx context.Context, service certs.Service) error {
	kubeAPIServers, err := p.opts.Observer.KubeAPIServers(ctx)
	if err != nil {
		return err
	}
	apiServices, err := p.opts.Observer.APIServices(ctx, service)
	if err != nil {
		return err
	}
	for _, a := range apiServices {
		for _, k := range kubeAPIServers {
			if err := p.opts.Observer.CheckResponds(ctx, k, a); err != nil {
				return fmt.Errorf("APIService %s through %s: %w", a.Name, k, err)
			}
		}
	}
	return nil
}
