// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	"example.com/extension-apiserver/internal/catalogue"
	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/frontproxy"
)

// parallel limits the concurrent requests, and requestTimeout the duration of each.
// kube-aggregator itself allows 5 s for discovery.
const (
	parallel       = 10
	requestTimeout = 8 * time.Second
)

// Options select what Collect reads.
type Options struct {
	// APIServices are the names of those to diagnose. Empty means all that have a Service.
	APIServices []string
	// Pre also reads whether a server can be installed.
	Pre bool
	// Pod connects to servers from a pod, if an API does not work; nil means that it does not.
	Pod *PodOptions
	Now func() time.Time // nil means time.Now
}

// NameError reports APIServices that do not exist or have no Service.
type NameError struct{ Problems []error }

func (e *NameError) Error() string { return errors.Join(e.Problems...).Error() }

// Collect reads the facts from the cluster of config. It changes nothing, except that it creates
// access reviews and IdentityReviews, which are stored nowhere, and the pod of Options.Pod. A fact
// that cannot be read is in Unread. Collect returns an error if it cannot read the APIServices,
// together with the facts about the request for them, and a *NameError for names that are not those
// of aggregated APIServices.
func Collect(ctx context.Context, config *rest.Config, o Options) (*Facts, error) {
	c, err := newCollector(config)
	if err != nil {
		return nil, err
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	c.facts.Now = o.Now()
	if err := c.readAPIServices(ctx, o.APIServices); err != nil {
		return c.facts, err
	}
	c.each(ctx, append([]func(context.Context){
		c.readVersion, c.readTrust, c.readCRDs, c.readTerminating, c.readWebhooks, c.readPolicies, c.readQuotas,
		c.readDiscovery, c.readOpenAPI,
	}, append(c.backendReads(), c.responseReads()...)...)...)
	c.facts.Now, c.facts.Pre = o.Now().Add(c.facts.Skew), o.Pre
	c.each(ctx, slices.Concat(c.accountReads(), c.brokenReads(), c.preReads(), c.podReads(o.Pod))...)
	c.facts.Requests = c.requests.Load()
	slices.SortFunc(c.facts.Unread, func(a, b Unread) int {
		return cmp.Or(cmp.Compare(slices.Index(catalogue.Layers, a.Layer), slices.Index(catalogue.Layers, b.Layer)),
			cmp.Compare(a.What, b.What))
	})
	return c.facts, nil
}

// Names returns the names of the APIServices that have a Service.
func Names(ctx context.Context, config *rest.Config) ([]string, error) {
	c, err := newCollector(config)
	if err != nil {
		return nil, err
	}
	if err := c.readAPIServices(ctx, nil); err != nil {
		return nil, err
	}
	var out []string
	for _, a := range c.facts.APIServices {
		out = append(out, a.Name)
	}
	return out, nil
}

// collector reads facts. Its methods may run concurrently.
type collector struct {
	core       kubernetes.Interface
	aggregator aggregatorclient.Interface
	metadata   metadata.Interface
	requests   atomic.Int64
	mu         sync.Mutex
	facts      *Facts // protected by mu while methods run concurrently
	// skews are how much the clocks behind paths are ahead of this machine's. Protected by mu.
	skews map[string]time.Duration
}

func newCollector(config *rest.Config) (*collector, error) {
	c := &collector{facts: &Facts{Backends: map[certs.Service]*Backend{}, Responses: map[string]Response{}},
		skews: map[string]time.Duration{}}
	c.facts.Host, c.facts.Proxy = config.Host, proxyOf(config)
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = 100, 200 // a run has fewer than 60 requests for five APIServices
	config.WarningHandlerWithContext = rest.NoWarnings{}
	config.Timeout = requestTimeout
	config.Wrap(func(transport http.RoundTripper) http.RoundTripper {
		return observingTransport{transport, c}
	})
	var errs [3]error
	c.core, errs[0] = kubernetes.NewForConfig(config)
	c.aggregator, errs[1] = aggregatorclient.NewForConfig(config)
	c.metadata, errs[2] = metadata.NewForConfig(config)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("create client: %w", err)
	}
	return c, nil
}

// proxyOf returns the proxy for requests to kube-apiserver, without its password.
func proxyOf(config *rest.Config) string {
	choose := config.Proxy
	if choose == nil {
		choose = http.ProxyFromEnvironment
	}
	host, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return ""
	}
	proxy, err := choose(&http.Request{URL: host})
	if err != nil || proxy == nil {
		return ""
	}
	return proxy.Redacted()
}

// observingTransport counts the requests, and compares the clocks in the responses with this
// machine's. kube-apiserver proxies the header Date of servers.
type observingTransport struct {
	http.RoundTripper
	*collector
}

func (t observingTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	t.requests.Add(1)
	response, err := t.RoundTripper.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if date, err := http.ParseTime(response.Header.Get("Date")); err == nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.skews[req.URL.Path] = time.Until(date)
	}
	return response, nil
}

// each runs the functions concurrently, and returns when all have returned.
func (c *collector) each(ctx context.Context, functions ...func(context.Context)) {
	var all sync.WaitGroup
	slots := make(chan struct{}, parallel)
	for _, f := range functions {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			f(ctx)
		})
	}
	all.Wait()
}

// set changes the facts.
func (c *collector) set(change func(*Facts)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(c.facts)
}

// failed records that a fact of the layer could not be read. It reports whether err is not nil.
func (c *collector) failed(layer, what string, err error) bool {
	if err == nil {
		return false
	}
	c.set(func(f *Facts) {
		f.Unread = append(f.Unread, Unread{Layer: layer, What: what, Reason: err.Error(),
			Forbidden: apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)})
	})
	return true
}

func (c *collector) readAPIServices(ctx context.Context, names []string) error {
	list, err := c.aggregator.ApiregistrationV1().APIServices().List(ctx, metav1.ListOptions{})
	if err != nil {
		c.facts.ClientError = err.Error()
		for _, layer := range catalogue.Layers[1:] {
			c.failed(layer, "list APIServices", err)
		}
		return fmt.Errorf("list APIServices: %w", err)
	}
	c.facts.All = list.Items
	slices.SortFunc(c.facts.All, func(a, b apiregistrationv1.APIService) int { return cmp.Compare(a.Name, b.Name) })
	var wrong NameError
	for _, name := range names {
		i := slices.IndexFunc(c.facts.All, func(a apiregistrationv1.APIService) bool { return a.Name == name })
		switch {
		case i < 0:
			wrong.Problems = append(wrong.Problems, fmt.Errorf("find APIService %q: not found", name))
		case c.facts.All[i].Spec.Service == nil:
			wrong.Problems = append(wrong.Problems,
				fmt.Errorf("diagnose APIService %q: it has no Service, because kube-apiserver serves it itself", name))
		}
	}
	if len(wrong.Problems) > 0 {
		return &wrong
	}
	for _, a := range c.facts.All {
		if a.Spec.Service != nil && (len(names) == 0 || slices.Contains(names, a.Name)) {
			c.facts.APIServices = append(c.facts.APIServices, a)
		}
	}
	return nil
}

func (c *collector) readVersion(ctx context.Context) {
	const path = "/version"
	var info version.Info
	if !c.failed("discovery", "get "+path, c.getJSON(ctx, path, "application/json", &info)) {
		c.set(func(f *Facts) { f.Kubernetes, f.Skew = info.GitVersion, c.skews[path] })
	}
}

func (c *collector) readTrust(ctx context.Context) {
	trust, err := c.core.CoreV1().ConfigMaps(frontproxy.Namespace).Get(ctx, frontproxy.ConfigMapName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		c.set(func(f *Facts) { f.TrustNotFound = true })
		return
	}
	if err == nil {
		err = sameName(trust, frontproxy.ConfigMapName)
	}
	if !c.failed("trust", "get the ConfigMap "+frontproxy.Namespace+"/"+frontproxy.ConfigMapName, err) {
		c.set(func(f *Facts) { f.Trust = trust })
	}
}

func (c *collector) readTerminating(ctx context.Context) {
	list, err := c.core.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if c.failed("effects", "list namespaces", err) {
		return
	}
	for _, n := range list.Items {
		if n.DeletionTimestamp != nil {
			c.set(func(f *Facts) { f.Terminating = append(f.Terminating, n) })
		}
	}
}

// backendReads returns a function for each Service of the APIServices.
func (c *collector) backendReads() []func(context.Context) {
	var out []func(context.Context)
	for _, a := range c.facts.APIServices {
		s := backendOf(a)
		if _, ok := c.facts.Backends[s]; ok {
			continue
		}
		c.facts.Backends[s] = &Backend{}
		out = append(out, func(ctx context.Context) {
			b := c.readBackend(ctx, "service", s)
			c.set(func(f *Facts) { f.Backends[s] = b })
		})
	}
	return out
}

// readBackend reads a Service, its EndpointSlices and the pods that its selector matches.
func (c *collector) readBackend(ctx context.Context, layer string, s certs.Service) *Backend {
	b := &Backend{}
	service, err := c.core.CoreV1().Services(s.Namespace).Get(ctx, s.Name, metav1.GetOptions{})
	if err == nil {
		err = sameName(service, s.Name)
	}
	if b.NotFound = apierrors.IsNotFound(err); b.NotFound ||
		c.failed(layer, fmt.Sprintf("get the Service %s/%s", s.Namespace, s.Name), err) {
		return b
	}
	b.Service = service
	if service.Spec.Type != corev1.ServiceTypeExternalName {
		list, err := c.core.DiscoveryV1().EndpointSlices(s.Namespace).List(ctx,
			metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + s.Name})
		if b.SlicesRead = !c.failed(layer, "list EndpointSlices in the namespace "+s.Namespace, err); b.SlicesRead {
			b.Slices = list.Items
		}
	}
	if len(service.Spec.Selector) > 0 {
		list, err := c.core.CoreV1().Pods(s.Namespace).List(ctx,
			metav1.ListOptions{LabelSelector: labels.SelectorFromSet(service.Spec.Selector).String()})
		if b.PodsRead = !c.failed(layer, "list pods in the namespace "+s.Namespace, err); b.PodsRead {
			b.Pods = list.Items
		}
	}
	return b
}

// sameName returns an error if a response is another object than the requested one. A proxy in
// front of kube-apiserver may respond with anything.
func sameName(object metav1.Object, name string) error {
	if object.GetName() != name {
		return fmt.Errorf("the response has the name %q, want %q", object.GetName(), name)
	}
	return nil
}

// crdResource is read as metadata, because the schemas of all CRDs can be large.
var crdResource = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
	Resource: "customresourcedefinitions"}

// readCRDs reads the CustomResourceDefinitions of the groups of the APIServices.
func (c *collector) readCRDs(ctx context.Context) {
	list, err := c.metadata.Resource(crdResource).List(ctx, metav1.ListOptions{})
	if c.failed("apiservice", "list customresourcedefinitions", err) {
		return
	}
	for _, item := range list.Items {
		_, group, _ := strings.Cut(item.Name, ".")
		if !slices.ContainsFunc(c.facts.APIServices, func(a apiregistrationv1.APIService) bool {
			return a.Spec.Group == group
		}) {
			continue
		}
		crd, err := c.readCRD(ctx, item.Name)
		if !c.failed("apiservice", "get the customresourcedefinition "+item.Name, err) {
			c.set(func(f *Facts) { f.CRDs = append(f.CRDs, crd) })
		}
	}
}
