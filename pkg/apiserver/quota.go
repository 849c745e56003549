// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	genericoptions "k8s.io/apiserver/pkg/server/options"
)

// addQuota lets the ResourceQuotas of a namespace limit how many objects of each of our resources it holds. The library
// leaves the plugin out of its recommended ones. It comes last, as in kube-apiserver: what it charges for a create that
// another plugin then refused would stay charged until kube-controller-manager counts again.
func addQuota(options *genericoptions.AdmissionOptions) {
	resourcequota.Register(options.Plugins)
	options.RecommendedPluginOrder = append(options.RecommendedPluginOrder, resourcequota.PluginName)
}

// quotaInitializer tells the plugin what to count: objects, of every resource alike.
type quotaInitializer struct{}

// Initialize implements admission.PluginInitializer.
func (quotaInitializer) Initialize(plugin admission.Interface) {
	if wants, ok := plugin.(initializer.WantsQuotaConfiguration); ok {
		wants.SetQuotaConfiguration(generic.NewConfiguration(nil, nil))
	}
}
