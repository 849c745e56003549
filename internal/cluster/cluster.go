// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
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
	// Dial connects to endpoints, or to the proxy that Config names for them; nil means net.Dialer. Connections to kube-apiservers take Config.Dial.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// EndpointAddresses, each HOST:PORT, are dialled instead of those of the Service's EndpointSlices.
	EndpointAddresses []string
	// PortForward reaches pods behind the Service through kube-apiserver instead of by their addresses.
	PortForward bool
	// KubeAPIServerURLs are asked instead of the endpoints of default/kubernetes.
	KubeAPIServerURLs []string
	Now               func() time.Time // nil means time.Now

	mu        sync.Mutex
	instances map[string]aggregatorclient.Interface // by URL
}

// New returns the cluster that config leads to.
func New(config *rest.Config) (*Cluster, error) {
	core, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	aggregator, err := aggregatorclient.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	return &Cluster{Config: config, Core: core, Aggregator: aggregator}, nil
}

// Time is what Now says, or the time of this machine.
func (c *Cluster) Time() time.Time {
	if c.Now == nil {
		return time.Now()
	}
	return c.Now()
}

func (c *Cluster) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if c.Dial == nil {
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	return c.Dial(ctx, network, address)
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
