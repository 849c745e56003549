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

// FieldManager is the field manager of certgen's applies.
const FieldManager = "certgen"

// Cluster provides access to one cluster. It must not be copied after first use.
type Cluster struct {
	Config     *rest.Config // of an administrator; its Host is replaced to reach one kube-apiserver
	Core       kubernetes.Interface
	Aggregator aggregatorclient.Interface
	// Dial connects to endpoints, or to the proxy that Config specifies for them; nil means
	// net.Dialer. Connections to kube-apiservers use Config.Dial.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	Now  func() time.Time // nil means time.Now
	Options

	mu        sync.Mutex
	instances map[string]aggregatorclient.Interface // by URL
}

// New returns a Cluster for the cluster of config.
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

// Options select a cluster, as kubectl's flags do, and the way to reach programs in it.
type Options struct {
	Kubeconfig string // empty means the files in KUBECONFIG, ~/.kube/config, or the pod's ServiceAccount
	Context    string // of the kubeconfig; empty means its current one
	// EndpointAddresses, each HOST:PORT, are dialled instead of those in the Service's
	// EndpointSlices.
	EndpointAddresses []string
	EndpointsOf       *certs.Service // the Service of EndpointAddresses; nil means any Service
	// PortForward reaches pods behind the Service through kube-apiserver instead of at their
	// addresses.
	PortForward       bool
	KubeAPIServerURLs []string // used instead of the endpoints of default/kubernetes
}

// Validate returns an *certs.InvalidError for each invalid option.
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

// Open returns a Cluster for a kubeconfig. It sends no requests.
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

// Time returns the result of Now, or time.Now if Now is nil.
func (c *Cluster) Time() time.Time {
	if c.Now == nil {
		return time.Now()
	}
	return c.Now()
}

// APIServices returns the APIServices whose backend is the Service, sorted by name. An empty
// result is not an error.
func (c *Cluster) APIServices(ctx context.Context, s certs.Service) ([]apiregistrationv1.APIService, error) {
	all, err := c.aggregated(ctx)
	return slices.DeleteFunc(all, func(a apiregistrationv1.APIService) bool { return backend(a) != s }), err
}

// aggregated returns the APIServices with a backend, sorted by name.
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

// Secrets returns a client for the Secrets in a namespace.
func (c *Cluster) Secrets(namespace string) typedcorev1.SecretInterface {
	return c.Core.CoreV1().Secrets(namespace)
}

// TrustObject is the name of the trust ConfigMap in findings and errors.
const TrustObject = "ConfigMap " + frontproxy.Namespace + "/" + frontproxy.ConfigMapName

// TrustConfigMap returns the ConfigMap in which kube-apiserver publishes the trusted front-proxy
// CA.
func (c *Cluster) TrustConfigMap(ctx context.Context) (*corev1.ConfigMap, error) {
	cm, err := c.Core.CoreV1().ConfigMaps(frontproxy.Namespace).Get(ctx, frontproxy.ConfigMapName, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("get ConfigMap %s/%s: %w", frontproxy.Namespace, frontproxy.ConfigMapName, err)
	}
	return cm, nil
}

// AggregatedServices returns the Services of all APIServices, each once, sorted by namespace and
// name.
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
