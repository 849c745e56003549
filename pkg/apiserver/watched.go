// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle"
	mutatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	validatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	mutatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	validatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/validating"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
)

// flowControl names priority and fairness in the table below; it is a feature, not an admission plugin.
const flowControl = "APIPriorityAndFairness"

// watched is an API of the cluster that a part of the server reads through an informer, or writes. A subresource stands
// behind a slash, as in discovery and in RBAC. The versions are those that the libraries at v0.36 ask for.
type watched struct {
	part     string
	resource schema.GroupVersionResource
	verbs    []string
}

// watchedAPIs is the one list of them; manifests/base/rbac.yaml grants exactly these.
var watchedAPIs = []watched{
	{lifecycle.PluginName, schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, []string{"get", "list", "watch"}},
	{mutatingpolicy.PluginName, admissionregistration("mutatingadmissionpolicies"), []string{"list", "watch"}},
	{mutatingpolicy.PluginName, admissionregistration("mutatingadmissionpolicybindings"), []string{"list", "watch"}},
	{mutatingwebhook.PluginName, admissionregistration("mutatingwebhookconfigurations"), []string{"list", "watch"}},
	{validatingpolicy.PluginName, admissionregistration("validatingadmissionpolicies"), []string{"list", "watch"}},
	{validatingpolicy.PluginName, admissionregistration("validatingadmissionpolicybindings"), []string{"list", "watch"}},
	{validatingwebhook.PluginName, admissionregistration("validatingwebhookconfigurations"), []string{"list", "watch"}},
	// It is kube-controller-manager that counts; admission adds what it lets in to the status, or refuses.
	{resourcequota.PluginName, schema.GroupVersionResource{Version: "v1", Resource: "resourcequotas"}, []string{"list", "watch"}},
	{resourcequota.PluginName, schema.GroupVersionResource{Version: "v1", Resource: "resourcequotas/status"}, []string{"update"}},
	{flowControl, schema.GroupVersionResource{Group: "flowcontrol.apiserver.k8s.io", Version: "v1", Resource: "flowschemas"}, []string{"list", "watch"}},
	{flowControl, schema.GroupVersionResource{Group: "flowcontrol.apiserver.k8s.io", Version: "v1", Resource: "prioritylevelconfigurations"}, []string{"list", "watch"}},
}

// The reviews by which kube-apiserver decides for the server; the ClusterRole system:auth-delegator grants both.
var (
	accessReviews = watched{"authorization", schema.GroupVersionResource{Group: "authorization.k8s.io", Version: "v1", Resource: "subjectaccessreviews"}, []string{"create"}}
	tokenReviews  = watched{"bearer tokens", schema.GroupVersionResource{Group: "authentication.k8s.io", Version: "v1", Resource: "tokenreviews"}, []string{"create"}}
)

func admissionregistration(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: resource}
}

// findUnserved asks discovery which of the watched APIs the cluster does not serve, and returns the parts of the server
// that need one of those.
func findUnserved(client kubernetes.Interface) (sets.Set[string], error) {
	parts := sets.New[string]()
	served := map[schema.GroupVersion]sets.Set[string]{}
	for _, api := range watchedAPIs {
		gv := api.resource.GroupVersion()
		if served[gv] == nil {
			list, err := client.Discovery().ServerResourcesForGroupVersion(gv.String())
			if err != nil && !apierrors.IsNotFound(err) {
				return nil, fmt.Errorf("discover whether the cluster serves %s: %w", gv, err)
			}
			served[gv] = sets.New[string]()
			if err == nil {
				for _, r := range list.APIResources {
					served[gv].Insert(r.Name)
				}
			}
		}
		if !served[gv].Has(api.resource.Resource) {
			klog.InfoS("This cluster does not serve an API; the part of the server that needs it stays off until the server restarts",
				"part", api.part, "api", api.resource.String())
			parts.Insert(api.part)
		}
	}
	return parts, nil
}
