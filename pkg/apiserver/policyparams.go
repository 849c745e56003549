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

// paramInitializer makes the plugins for policies read every parameter through an informer of the
// policy's own, as the library does for custom resources. For built-in kinds, such as ConfigMap,
// the library would use the shared factory's informer. If the server may not list the kind, that
// informer would keep the server from becoming ready, even for a policy about kinds of other
// servers. An informer that stopped because no policy needed it is never started again, and
// returns outdated parameters to the next policy (kubernetes/kubernetes#130887).
//
// If a parameter is not in the informer's cache, the plugins read it from kube-apiserver for each
// request that needs it. The library's client for these reads would be throttled to 5 requests
// per second.
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

// Initialize implements admission.PluginInitializer. The library's own initializer has run before
// it.
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

// withoutParams is an informer factory for policies, namespaces and other kinds, but not for
// parameters.
type withoutParams struct {
	informers.SharedInformerFactory
}

// ForResource returns an error. The library calls it for the informer of a parameter, and creates
// one after an error.
func (withoutParams) ForResource(resource schema.GroupVersionResource) (informers.GenericInformer, error) {
	return nil, fmt.Errorf("no shared informer reads %s for policies", resource)
}
