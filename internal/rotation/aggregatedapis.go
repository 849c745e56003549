// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/cluster"
)

// aggregated returns the Services of aggregated APIs that are checked in one of the given ways.
func (p *procedure) aggregated(ctx context.Context, looks ...Check) ([]certs.Service, error) {
	all, err := p.opts.Observer.AggregatedServices(ctx)
	return slices.DeleteFunc(all, func(s certs.Service) bool { return !slices.Contains(looks, p.checkFor(ctx, s)) }),
		err
}

// checkFor returns how to check a third-party API. It decides when it first sees the API and
// records the result. An API that cannot be checked must not prevent the replacement of a
// certificate.
func (p *procedure) checkFor(ctx context.Context, s certs.Service) Check {
	name := s.Namespace + "/" + s.Name
	if s == p.opts.Service {
		return CheckByProbe
	}
	if look, ok := p.state.Others[name]; ok {
		return look
	}
	look := CheckByProbe
	err := p.respondsEverywhere(ctx, s)
	if err != nil { // perhaps a kube-apiserver is restarting, which is unrelated to this API
		if p.respondsEverywhere(ctx, p.opts.Service) != nil {
			return CheckByProbe
		}
		err = p.respondsEverywhere(ctx, s)
	}
	if err != nil {
		look = CheckNone
		p.note(fmt.Sprintf("Service %s is not checked, because its API already does not respond: %v", name, err))
	} else if err := p.acceptsProxy(ctx, s); err != nil {
		look = CheckByResponse
		p.note(fmt.Sprintf("the endpoints of Service %s are not probed with the front proxy's certificate: %v; "+
			"certgen checks only that the API responds to kube-apiserver", name, err))
	}
	p.state.setCheck(s, look)
	return look
}

// resetChecks discards the recorded checks of third-party APIs, unless a certificate of another
// CA may be in use. Until then, the rotation cannot be the reason why an API does not respond.
func (p *procedure) resetChecks() {
	if p.makeCA == nil || !p.switched() {
		p.state.Others = nil
	}
}

// hasNoEndpoints reports whether a third-party API's Service has no endpoints, ready or not, or
// does not exist. A certificate is then not the reason why the API does not respond.
func (p *procedure) hasNoEndpoints(ctx context.Context, s certs.Service) bool {
	if s == p.opts.Service {
		return false
	}
	endpoints, err := p.opts.Observer.Endpoints(ctx, s)
	if len(endpoints) > 0 || err != nil && !apierrors.IsNotFound(err) {
		return false
	}
	p.note(fmt.Sprintf("Service %s/%s is not checked while it has no endpoints", s.Namespace, s.Name))
	return true
}

// ignoreUnrelated returns err, the problem of an API of Service s, unless it is unrelated to the
// rotation.
func (p *procedure) ignoreUnrelated(ctx context.Context, s certs.Service, err error) error {
	if err == nil {
		delete(p.failing, s)
		return nil
	}
	if p.hasNoEndpoints(ctx, s) || p.exclude(ctx, s, err) {
		return nil
	}
	return err
}

// exclude excludes a third-party API from further checks if it has failed for half of the
// timeout and the rotation cannot be the cause. That is the case if the CA and the name in the
// certificate do not change, and the API does not accept the current certificate either. After
// the switch, the current certificate is the new one, which the API must have accepted before.
func (p *procedure) exclude(ctx context.Context, s certs.Service, err error) bool {
	if p.makeCA != nil || s == p.opts.Service || p.switched() && p.checkFor(ctx, s) != CheckByProbe ||
		p.respondsEverywhere(ctx, p.opts.Service) != nil {
		return false
	}
	if p.respondsEverywhere(ctx, s) == nil && p.acceptsProxy(ctx, s) == nil {
		return false
	}
	since, known := p.failing[s]
	if !known {
		p.failing[s] = p.opts.Now()
	}
	if !known || p.opts.Now().Sub(since) < p.opts.Timeout/2 {
		return false
	}
	p.state.setCheck(s, CheckNone)
	p.note(fmt.Sprintf("Service %s/%s is no longer checked: %v", s.Namespace, s.Name, err))
	return true
}

// switched reports whether a new certificate may be in use.
func (p *procedure) switched() bool {
	return slices.ContainsFunc(p.steps, func(s step) bool { return s.kind == Identity && p.record(&s) != nil })
}

// acceptsProxy returns nil if all ready endpoints of a Service report that they accept the
// current front-proxy certificate.
func (p *procedure) acceptsProxy(ctx context.Context, s certs.Service) error {
	proxy, err := certs.ReadPair(p.opts.store, p.leafDirs[0])
	if err != nil {
		return err
	}
	return p.probeEndpoints(ctx, s, proxy, func(e cluster.Endpoint, got cluster.ProbeResult) error {
		if got != cluster.Accepted {
			return fmt.Errorf("endpoint %s reports the certificate in use as %s", e.Address, got)
		}
		return nil
	})
}

// probeEndpoints sends a request with a front-proxy certificate to each endpoint of a Service
// and passes the result to judge. It skips an endpoint that is not ready and does not respond.
func (p *procedure) probeEndpoints(ctx context.Context, s certs.Service, proxy *certs.KeyPair,
	judge func(cluster.Endpoint, cluster.ProbeResult) error) error {
	trust, err := p.caBundleOf(ctx, s)
	if err != nil {
		return err
	}
	endpoints, err := p.opts.Observer.Endpoints(ctx, s)
	if err != nil {
		return err
	}
	for _, e := range endpoints {
		got, err := p.opts.Observer.ProbeFrontProxy(ctx, e, s, trust, proxy)
		if err != nil && !e.Ready {
			continue
		}
		if err == nil {
			err = judge(e, got)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// probe returns nil if all endpoints of all aggregated APIs give the wanted result for the key
// pair. A different result of NotTrusted or Accepted may change with time; any other result is
// permanent.
func (p *procedure) probe(ctx context.Context, proxy *certs.KeyPair, want cluster.ProbeResult) error {
	services, err := p.aggregated(ctx, CheckByProbe)
	if err != nil {
		return err
	}
	probed := 0
	for _, service := range services {
		err := p.probeEndpoints(ctx, service, proxy, func(e cluster.Endpoint, got cluster.ProbeResult) error {
			probed++
			switch {
			case got != want && got != cluster.Accepted && got != cluster.NotTrusted:
				return &stopError{fmt.Errorf(
					"endpoint %s of Service %s/%s: expected the front proxy's certificate to be %s, found %s; "+
						"check how this API server authenticates requests", e.Address, service.Namespace,
					service.Name, want, got)}
			case got != want:
				return fmt.Errorf("endpoint %s of Service %s/%s: expected the certificate sha256:%.16s to be %s, "+
					"found %s",
					e.Address, service.Namespace, service.Name, certs.Fingerprint(proxy.Certificate), want, got)
			}
			return nil
		})
		if err := p.ignoreUnrelated(ctx, service, err); err != nil {
			return err
		}
	}
	if probed == 0 {
		return errors.New("expected endpoints of aggregated APIs, found none")
	}
	return nil
}

// caBundleOf returns the CAs that verify the endpoints of a Service. It returns an error if no
// APIService has a caBundle, as is common for metrics-server: the endpoints' identity cannot be
// verified then.
func (p *procedure) caBundleOf(ctx context.Context, service certs.Service) (certs.Bundle, error) {
	apiServices, err := p.opts.Observer.APIServices(ctx, service)
	if err != nil {
		return nil, err
	}
	for _, a := range apiServices {
		if bundle, err := certs.ParseBundle(a.Spec.CABundle); err == nil {
			return bundle, nil
		}
	}
	return nil, fmt.Errorf(
		"expected an APIService with a caBundle for Service %s/%s, to verify its endpoints, found none",
		service.Namespace, service.Name)
}

// proxyResponds returns nil if all kube-apiservers get responses from all aggregated APIs. All of
// these APIs see the same client certificate.
func (p *procedure) proxyResponds(ctx context.Context) error {
	services, err := p.aggregated(ctx, CheckByProbe, CheckByResponse)
	if err != nil {
		return err
	}
	for _, service := range services {
		if err := p.ignoreUnrelated(ctx, service, p.respondsEverywhere(ctx, service)); err != nil {
			return err
		}
	}
	return nil
}
