// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	helper "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"

	"example.com/extension-apiserver/internal/catalogue"
	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/certs/verify"
	"example.com/extension-apiserver/internal/cluster"
	"example.com/extension-apiserver/internal/cluster/apply"
)

// Options define what to check in a cluster, and against what.
type Options struct {
	Service certs.Service
	// Dir is a directory created by certgen init. Its serving key pair is compared with the
	// served and trusted certificates. Empty means no comparison.
	Dir string
	// Secret is the name of the Secret with the serving key pair, which is compared in the same
	// way. Empty means none.
	Secret string
	// ProxyClient is the directory of the front proxy's client key pair, with which every
	// endpoint is probed. Empty means no probe.
	ProxyClient string
}

// Validate returns a *certs.InvalidError for each invalid value, joined.
func (o Options) Validate() error { return o.Service.Validate() }

// observed contains all data for the checks, read once. The checks send no requests.
type observed struct {
	service     certs.Service
	now         time.Time
	apiServices []apiregistrationv1.APIService
	endpoints   []cluster.Endpoint
	served      map[string][]cluster.Served // by APIService, with its caBundle as trust
	stored      []stored
	secret      *corev1.Secret // nil if none was named
	pods        []corev1.Pod   // behind the Service
	responses   []response
	trust       *corev1.ConfigMap
	trustErr    error // why trust is nil
	proxy       *certs.KeyPair
	probes      []probe
}

// stored is a serving key pair in a directory or a Secret.
type stored struct {
	object string
	chain  certs.Bundle
	bundle certs.Bundle // ca.crt
}

// response is the result of a request to the API through one kube-apiserver.
type response struct {
	kubeAPIServer string
	apiService    apiregistrationv1.APIService
	err           error
}

type probe struct {
	endpoint cluster.Endpoint
	result   cluster.ProbeResult
	err      error
}

// Check checks a running cluster with its current data, as kube-aggregator and the API servers
// do, and returns the findings. It changes nothing. It returns an error if it cannot read the
// APIServices or endpoints, on which everything else depends.
func Check(ctx context.Context, c *cluster.Cluster, o Options) (*verify.Report, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	seen, err := observeCertificates(ctx, c, o)
	if err != nil {
		return nil, err
	}
	seen.responses = requestAPIs(ctx, c, seen.apiServices)
	if err := seen.readPods(ctx, c); err != nil {
		return nil, err
	}
	for _, e := range seen.endpoints {
		if seen.proxy != nil {
			result, err := c.ProbeFrontProxy(ctx, e, o.Service, seen.trusted(), seen.proxy)
			seen.probes = append(seen.probes, probe{e, result, err})
		}
	}
	return seen.report(), ctx.Err()
}

// observeCertificates reads the served, stored and trusted certificates.
func observeCertificates(ctx context.Context, c *cluster.Cluster, o Options) (*observed, error) {
	if err := cluster.CheckClock(ctx, c); err != nil { // certificates are checked by it
		return nil, err
	}
	seen := &observed{service: o.Service, now: c.Time(), served: map[string][]cluster.Served{}}
	var err error
	if err := seen.readStored(ctx, c, o); err != nil {
		return nil, err
	}
	if seen.apiServices, err = c.APIServices(ctx, o.Service); err != nil {
		return nil, err
	}
	if len(seen.apiServices) == 0 {
		return nil, fmt.Errorf(
			"expected APIServices for the Service %s/%s, found none; check --service and --namespace, and register "+
				"the API",
			o.Service.Namespace, o.Service.Name)
	}
	if seen.endpoints, err = c.Endpoints(ctx, o.Service); err != nil {
		return nil, err
	}
	byBundle := map[string][]cluster.Served{} // most APIServices of a Service have the same bundle
	for _, a := range seen.apiServices {
		bundle := string(a.Spec.CABundle)
		if _, dialled := byBundle[bundle]; !dialled {
			for _, e := range seen.endpoints {
				byBundle[bundle] = append(byBundle[bundle], c.Present(ctx, e, o.Service,
					certs.LenientBundle(a.Spec.CABundle)))
			}
		}
		seen.served[a.Name] = byBundle[bundle]
	}
	seen.trust, seen.trustErr = c.TrustConfigMap(ctx)
	return seen, ctx.Err()
}

// trusted returns all CAs in the caBundles. A probe checks the other direction, so any of them
// is accepted.
func (o *observed) trusted() certs.Bundle {
	var all certs.Bundle
	for _, a := range o.apiServices {
		all = all.Merge(o.now, certs.LenientBundle(a.Spec.CABundle)...)
	}
	return all
}

// requestAPIs requests each APIService through each kube-apiserver. If the individual
// kube-apiservers are unknown, it uses the one in Config.
func requestAPIs(ctx context.Context, c *cluster.Cluster, all []apiregistrationv1.APIService) []response {
	urls, err := c.KubeAPIServers(ctx)
	if err != nil {
		urls = []string{c.Config.Host}
	}
	var out []response
	for _, url := range urls {
		for _, a := range all {
			out = append(out, response{url, a, c.CheckResponds(ctx, url, a)})
		}
	}
	return out
}

func (o *observed) readStored(ctx context.Context, c *cluster.Cluster, opts Options) (err error) {
	if opts.Dir != "" {
		src, err := apply.ReadSource(certs.Dir(opts.Dir), opts.Service, c.Time())
		if err != nil {
			return err
		}
		o.stored = append(o.stored, stored{src.Store.Path(certs.ServingDir), src.Chain, src.Bundle})
	}
	if opts.Secret != "" {
		secret, err := c.Core.CoreV1().Secrets(opts.Service.Namespace).Get(ctx, opts.Secret, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("get Secret %s/%s: %w", opts.Service.Namespace, opts.Secret, err)
		}
		chain := certs.LenientBundle(secret.Data[corev1.TLSCertKey])
		if len(chain) == 0 {
			return fmt.Errorf("read Secret %s/%s: expected a certificate in %s, found none", opts.Service.Namespace,
				opts.Secret, corev1.TLSCertKey)
		}
		o.secret = secret
		o.stored = append(o.stored, stored{"Secret " + secret.Namespace + "/" + secret.Name, chain,
			certs.LenientBundle(secret.Data[certs.BundleFile])})
	}
	if opts.ProxyClient != "" {
		o.proxy, err = certs.ReadKeyPair(opts.ProxyClient)
	}
	return err
}

// readPods reads the pods that EndpointSlices name. It ignores pods that no longer exist.
func (o *observed) readPods(ctx context.Context, c *cluster.Cluster) error {
	if !slices.ContainsFunc(o.endpoints, func(e cluster.Endpoint) bool { return e.Pod != "" }) {
		return nil
	}
	list, err := c.Core.CoreV1().Pods(o.service.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list Pods of namespace %s: %w", o.service.Namespace, err)
	}
	o.pods = slices.DeleteFunc(list.Items, func(p corev1.Pod) bool {
		return !slices.ContainsFunc(o.endpoints, func(e cluster.Endpoint) bool { return e.Pod == p.Name })
	})
	return nil
}

// Names of objects in findings.
func apiServiceObject(a apiregistrationv1.APIService) string { return "APIService " + a.Name }
func endpointObject(e cluster.Endpoint) string               { return "endpoint " + e.Address }

func (o *observed) serviceObject() string {
	return "Service " + o.service.Namespace + "/" + o.service.Name
}

func (o *observed) proxyObject() string {
	return "front proxy " + o.proxy.Certificate.Subject.String()
}

// report runs the checks and counts the findings about each object.
func (o *observed) report() *verify.Report {
	findings := catalogue.Sort(catalogue.Run(checks, o, o.serviceObject()))
	return verify.NewReport("LiveReport", o.now, verify.CountObjects(o.checked(), findings), findings)
}

// checked lists the checked objects, with or without findings.
func (o *observed) checked() []verify.Checked {
	out := []verify.Checked{{Object: o.serviceObject(), Detail: fmt.Sprintf("%d endpoints, name %s", len(o.endpoints),
		o.service.ServerName())}}
	for _, a := range o.apiServices {
		out = append(out, verify.Checked{Object: apiServiceObject(a),
			Detail: fmt.Sprintf("%d CAs in its caBundle, Available %s", len(certs.LenientBundle(a.Spec.CABundle)),
				available(a).Status)})
	}
	for i, e := range o.endpoints {
		c := verify.Checked{Object: endpointObject(e), Detail: "ready"}
		if !e.Ready {
			c.Detail = "not ready"
		}
		for _, a := range o.apiServices {
			if leaf := o.served[a.Name][i].Leaf; leaf != nil {
				c.Detail, c.NotAfter = leaf.Subject.String(), new(leaf.NotAfter.UTC())
			}
		}
		out = append(out, c)
	}
	for _, s := range o.stored {
		out = append(out, verify.Checked{Object: s.object, Detail: s.chain[0].Subject.String(),
			NotAfter: new(s.chain[0].NotAfter.UTC())})
	}
	for i, a := range o.responses {
		if i == 0 || a.kubeAPIServer != o.responses[i-1].kubeAPIServer {
			out = append(out, verify.Checked{Object: "kube-apiserver " + a.kubeAPIServer,
				Detail: fmt.Sprintf("%d APIServices requested", len(o.apiServices))})
		}
	}
	out = append(out, verify.Checked{Object: cluster.TrustObject, Detail: "trusted front-proxy CA"})
	if o.proxy != nil {
		out = append(out, verify.Checked{
			Object: o.proxyObject(), Detail: fmt.Sprintf("%d endpoints probed", len(o.probes)),
			NotAfter: new(o.proxy.Certificate.NotAfter.UTC()),
		})
	}
	return out
}

// available returns the condition Available, with status Unknown if it does not exist.
func available(a apiregistrationv1.APIService) apiregistrationv1.APIServiceCondition {
	if c := helper.GetAPIServiceConditionByType(&a, apiregistrationv1.Available); c != nil {
		return *c
	}
	return apiregistrationv1.APIServiceCondition{Status: apiregistrationv1.ConditionUnknown}
}
