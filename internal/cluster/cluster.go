// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/frontproxy"
)

// FieldManager is the name under which certgen owns what it applies.
const FieldManager = "certgen"

// Cluster is one cluster, with the ways to ask it. It must not be copied after its first use.
type Cluster struct {
	Config     *rest.Config // of an administrator; its Host is replaced to ask one kube-apiserver
	Core       kubernetes.Interface
	Aggregator aggregatorclient.Interface
	// Dial connects to endpoints, or to the proxy that Config names for them; nil means net.Dialer. Connections to
	// kube-apiservers take Config.Dial.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	Now  func() time.Time // nil means time.Now
	Options

	mu        sync.Mutex
	instances map[string]aggregatorclient.Interface // by URL
}

// New returns the cluster that config leads to.
func New(config *rest.Config) (*Cluster, error) {
	core, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("create client: %w", err)
	}
	aggregator, err := aggregatorclient.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("create client: %w", err)
	}
	return &Cluster{Config: config, Core: core, Aggregator: aggregator}, nil
}

// Options say which cluster, as the flags of kubectl do, and how what runs in it is reached.
type Options struct {
	Kubeconfig string // empty means the files in KUBECONFIG, ~/.kube/config, or the pod's ServiceAccount
	Context    string // of the kubeconfig; empty means its current one
	// EndpointAddresses, each HOST:PORT, are dialled instead of those of the Service's EndpointSlices.
	EndpointAddresses []string
	EndpointsOf       *certs.Service // whose those are; nil means of any that is asked for
	// reaches pods behind the Service through kube-apiserver instead of by their addresses
	PortForward       bool
	KubeAPIServerURLs []string // are asked instead of the endpoints of default/kubernetes
}

// Validate returns all that is wrong with the options, as *certs.InvalidError.
func (o Options) Validate() []error {
	var errs []error
	for _, address := range o.EndpointAddresses {
		if _, port, err := net.SplitHostPort(address); err != nil || port == "" {
			errs = append(errs, &certs.InvalidError{Field: "endpoint", Value: address,
				Reason: "expected HOST:PORT, such as 10.0.0.1:6443"})
		}
	}
	if o.PortForward && len(o.EndpointAddresses) > 0 {
		errs = append(errs, &certs.InvalidError{Field: "port-forward", Value: "true",
			Reason: "expected no --endpoint: certgen does not know the pods at those addresses"})
	}
	for _, s := range o.KubeAPIServerURLs {
		if u, err := url.Parse(s); err != nil || u.Scheme != "https" || u.Host == "" || u.Path != "" {
			errs = append(errs, &certs.InvalidError{Field: "kube-apiserver", Value: s,
				Reason: "expected a URL such as https://10.0.0.1:6443"})
		}
	}
	return errs
}

// Open returns the cluster of a kubeconfig. Nothing is asked yet.
func Open(o Options) (*Cluster, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.Kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules,
		&clientcmd.ConfigOverrides{CurrentContext: o.Context}).ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		err = errors.New("no cluster configured; set --kubeconfig or the environment variable KUBECONFIG")
	}
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	c, err := New(config)
	if err == nil {
		c.Options = o
	}
	return c, err
}

// Time is what Now says, or the time of this machine.
func (c *Cluster) Time() time.Time {
	if c.Now == nil {
		return time.Now()
	}
	return c.Now()
}

// APIServices returns those whose backend is the Service, by name. None is no error.
func (c *Cluster) APIServices(ctx context.Context, s certs.Service) ([]apiregistrationv1.APIService, error) {
	all, err := c.aggregated(ctx)
	return slices.DeleteFunc(all, func(a apiregistrationv1.APIService) bool { return backend(a) != s }), err
}

// aggregated are the APIServices with a backend, by name.
func (c *Cluster) aggregated(ctx context.Context) ([]apiregistrationv1.APIService, error) {
	list, err := c.Aggregator.ApiregistrationV1().APIServices().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list APIServices: %w", err)
	}
	out := slices.DeleteFunc(list.Items, func(a apiregistrationv1.APIService) bool { return a.Spec.Service == nil })
	slices.SortFunc(out, func(a, b apiregistrationv1.APIService) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

func backend(a apiregistrationv1.APIService) certs.Service {
	return certs.Service{Name: a.Spec.Service.Name, Namespace: a.Spec.Service.Namespace}
}

// Secrets are those of a namespace.
func (c *Cluster) Secrets(namespace string) typedcorev1.SecretInterface {
	return c.Core.CoreV1().Secrets(namespace)
}

// TrustObject is how findings and errors name that ConfigMap.
const TrustObject = "ConfigMap " + frontproxy.Namespace + "/" + frontproxy.ConfigMapName

// TrustConfigMap returns the ConfigMap in which kube-apiserver publishes the trust in its front proxy.
func (c *Cluster) TrustConfigMap(ctx context.Context) (*corev1.ConfigMap, error) {
	cm, err := c.Core.CoreV1().ConfigMaps(frontproxy.Namespace).Get(ctx, frontproxy.ConfigMapName, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("get ConfigMap %s/%s: %w", frontproxy.Namespace, frontproxy.ConfigMapName, err)
	}
	return cm, nil
}

// AggregatedServices returns the Services that APIServices name, each once, by namespace and name.
func (c *Cluster) AggregatedServices(ctx context.Context) ([]certs.Service, error) {
	all, err := c.aggregated(ctx)
	if err != nil {
		return nil, err
	}
	var out []certs.Service
	for _, a := range all {
		out = append(out, backend(a))
	}
	slices.SortFunc(out, func(a, b certs.Service) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return slices.Compact(out), nil
}
