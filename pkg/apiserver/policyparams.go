// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	mutatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	validatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/rest"
)

// paramInitializer has the plugins for policies read every parameter through an informer of the policy's own, as the
// library does for custom resources. For built-in kinds, such as ConfigMap, it would take the shared factory's. One
// that may not read then keeps the server from being ready, for a policy that may be about other kinds than ours; and
// one that was stopped, since no policy needed it, is never started again and gives old parameters to the next
// (kubernetes/kubernetes#130887).
//
// The plugins read a parameter that is not in the informer's cache from kube-apiserver, with each request that needs
// it. The library's client for that would wait after 5 requests a second.
type paramInitializer struct {
	informers informers.SharedInformerFactory
	client    dynamic.Interface
}

func newParamInitializer(c *genericapiserver.RecommendedConfig) (paramInitializer, error) {
	config := rest.CopyConfig(c.ClientConfig)
	config.QPS, config.Burst = clientQPS, clientBurst
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return paramInitializer{}, fmt.Errorf("create client for policy parameters: %w", err)
	}
	return paramInitializer{c.SharedInformerFactory, client}, nil
}

// Initialize implements admission.PluginInitializer. The library's own initializer came before it.
func (i paramInitializer) Initialize(plugin admission.Interface) {
	switch plugin := plugin.(type) {
	case *mutatingpolicy.Plugin:
		plugin.SetDynamicClient(i.client)
		plugin.SetExternalKubeInformerFactory(withoutParams{i.informers})
	case *validatingpolicy.Plugin:
		plugin.SetDynamicClient(i.client)
		plugin.SetExternalKubeInformerFactory(withoutParams{i.informers})
	}
}

// withoutParams is a factory of informers for policies, namespaces and so on, and for no parameters.
type withoutParams struct {
	informers.SharedInformerFactory
}

// ForResource is what the library asks for the informer of a parameter; on an error it makes one.
func (withoutParams) ForResource(resource schema.GroupVersionResource) (informers.GenericInformer, error) {
	return nil, fmt.Errorf("no shared informer reads %s for policies", resource)
}
