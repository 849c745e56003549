// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	genericoptions "k8s.io/apiserver/pkg/server/options"
)

// addQuota lets the ResourceQuotas of a namespace limit the number of objects of each resource of
// the API. The plugin is not among the library's recommended plugins. It is the last plugin, as
// in kube-apiserver: if another plugin rejected a create later, the object would remain in the
// used count until kube-controller-manager counts again.
func addQuota(options *genericoptions.AdmissionOptions) {
	resourcequota.Register(options.Plugins)
	options.RecommendedPluginOrder = append(options.RecommendedPluginOrder, resourcequota.PluginName)
}

// quotaInitializer configures the plugin to count objects of every resource.
type quotaInitializer struct{}

// Initialize implements admission.PluginInitializer.
func (quotaInitializer) Initialize(plugin admission.Interface) {
	if wants, ok := plugin.(initializer.WantsQuotaConfiguration); ok {
		wants.SetQuotaConfiguration(generic.NewConfiguration(nil, nil))
	}
}
