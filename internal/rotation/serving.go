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

// serving replaces the serving certificate with a new one of the same CA. Trust does not change.
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

// liveServed is for steps during which the new leaf is not in use.
func (p *procedure) liveServed(ctx context.Context) error {
	return p.servedEverywhere(ctx, p.currentLeaf(0).Certificate)
}

func (p *procedure) switchToNext(ctx context.Context, bundle bundleOf) error {
	if err := p.checkUnchanged(); err != nil {
		return err
	}
	return p.switchLeaf(ctx, p.next, p.writeNew, bundle)
}

// switchLeaf puts a leaf into use, with the bundle next to it. It returns an error if a live
// caBundle does not verify the leaf.
func (p *procedure) switchLeaf(ctx context.Context, leaf *certs.KeyPair, write func(bundleOf) error,
	bundle bundleOf) error {
	if p.opts.Observer != nil {
		if err := p.checkCABundles(ctx, leaf.Certificate); err != nil {
			return err
		}
	}
	return write(bundle)
}

// issueServing issues a new leaf with the names of the old one.
func (p *procedure) issueServing(ca *certs.CA, old *x509.Certificate) (*certs.KeyPair, error) {
	return ca.IssueServing(certs.ServingOptions{
		DNSNames: old.DNSNames, IPs: certs.Describe(old, p.opts.Now()).IPAddresses, Lifetime: p.opts.Lifetime,
		KeyType: p.opts.KeyType,
	})
}

// checkServing returns an error if the rotation's result could not be observed, or if it would
// not match the Service.
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
	// Requests fail already, and a new certificate can be served at once.
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
		p.noteUnknownKubeAPIServers(ctx) // the job in a cluster has no permission to list Leases there
	}
	return p.servedEverywhere(ctx, leaf.Certificate)
}

// noteUnknownKubeAPIServers emits a note if not all kube-apiservers can be queried individually,
// for example behind the load balancer of a managed cluster.
func (p *procedure) noteUnknownKubeAPIServers(ctx context.Context) {
	urls, err := p.opts.Observer.KubeAPIServers(ctx)
	if err != nil {
		return // a later check queries them again
	}
	if live, err := p.opts.Observer.Identities(ctx); err == nil && live > len(urls) {
		p.note(fmt.Sprintf("there are %d kube-apiservers by their identity Leases, but URLs of only %d: %q; certgen "+
			"does not observe the others, and relies on the hold; "+
			"name each with --kube-apiserver if you can reach it", live, len(urls), urls))
	}
}

// checkOwners returns an error for a caBundle that an injector maintains, because the injector
// would restore its own CA, or that another manager owns and the rotation must change. A new
// leaf of the same CA changes no caBundle. In that case, a foreign owner is only reported in a
// note, because it will block a rotation of the CA.
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

// note reports, once, information that does not stop the rotation.
func (p *procedure) note(message string) {
	if !p.noted[message] {
		p.noted[message] = true
		p.event(nil, EventNote, message)
	}
}

// checkCABundles verifies a leaf with each live caBundle, as kube-aggregator does.
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

// servedEverywhere returns nil if all endpoints of the Service serve the leaf, the current
// caBundles verify it, and all kube-apiservers get responses from all APIServices. It skips an
// endpoint that is not ready and does not respond: it gets no requests, and its process reads
// the files when it starts. If the rotation replaces the CA, it must be certain that no such
// process exists. Otherwise a process on a disconnected node would come back with a certificate
// that is no longer trusted.
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
			if p.makeCA != nil && !isRefused(s.Err) { // the host or its kubelet reports no listener
				cutOff = &waitError{fmt.Errorf(
					"endpoint %s is not ready and cannot be reached, so its certificate cannot be observed: %w%s; if "+
						"the node is gone, delete the pod",
					s.Endpoint.Address, s.Err, unreached)}
			}
		case s.Leaf == nil:
			return fmt.Errorf("endpoint %s: expected a certificate that the caBundle verifies: %w%s",
				s.Endpoint.Address, s.Err, unreached)
		case s.Err != nil:
			return fmt.Errorf("endpoint %s: expected a certificate that the caBundle verifies: %w",
				s.Endpoint.Address, s.Err)
		case !s.Leaf.Equal(leaf):
			return fmt.Errorf("endpoint %s serves the certificate sha256:%.16s, not sha256:%.16s; check that it reads "+
				"%s, and that this is not a subPath mount",
				s.Endpoint.Address, certs.Fingerprint(s.Leaf), certs.Fingerprint(leaf),
				p.opts.store.Path(p.leafDirs[0]))
		}
	}
	return cmp.Or(p.respondsEverywhere(ctx, p.opts.Service), cutOff)
}

const unreached = "; if you cannot reach pods, use --port-forward or --endpoint"

// apiServices returns the APIServices of the Service, at least one.
func (p *procedure) apiServices(ctx context.Context) ([]apiregistrationv1.APIService, error) {
	found, err := p.opts.Observer.APIServices(ctx, p.opts.Service)
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("expected APIServices of Service %s/%s, found none", p.opts.Service.Namespace,
			p.opts.Service.Name)
	}
	return found, err
}

// respondsEverywhere returns nil if all kube-apiservers get responses from all APIServices of the
// Service.
func (p *procedure) respondsEverywhere(ctx context.Context, service certs.Service) error {
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
