// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"net"
	"net/url"

	"k8s.io/client-go/tools/clientcmd"

	"example.com/extension-apiserver/internal/certs"
)

// Options say which cluster, as the flags of kubectl do.
type Options struct {
	Kubeconfig string // empty means the files in KUBECONFIG, ~/.kube/config, or the pod's ServiceAccount
	Context    string // of the kubeconfig; empty means its current one
	// EndpointAddresses and KubeAPIServerURLs are those of Cluster.
	EndpointAddresses, KubeAPIServerURLs []string
	PortForward                          bool
}

// Validate returns all that is wrong with the options, as *certs.InvalidError.
func (o Options) Validate() []error {
	var errs []error
	for _, address := range o.EndpointAddresses {
		if _, port, err := net.SplitHostPort(address); err != nil || port == "" {
			errs = append(errs, &certs.InvalidError{Field: "endpoint", Value: address, Reason: "expected HOST:PORT, such as 10.0.0.1:6443"})
		}
	}
	if o.PortForward && len(o.EndpointAddresses) > 0 {
		errs = append(errs, &certs.InvalidError{Field: "port-forward", Value: "true", Reason: "expected it without --endpoint: which pods are behind those addresses is not known"})
	}
	for _, s := range o.KubeAPIServerURLs {
		if u, err := url.Parse(s); err != nil || u.Scheme != "https" || u.Host == "" || u.Path != "" {
			errs = append(errs, &certs.InvalidError{Field: "kube-apiserver", Value: s, Reason: "expected a URL such as https://10.0.0.1:6443"})
		}
	}
	return errs
}

// Open returns the cluster of a kubeconfig. Nothing is asked yet.
func Open(o Options) (*Cluster, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.Kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: o.Context}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	c, err := New(config)
	if err != nil {
		return nil, err
	}
	c.EndpointAddresses, c.KubeAPIServerURLs, c.PortForward = o.EndpointAddresses, o.KubeAPIServerURLs, o.PortForward
	return c, nil
}
