// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

	"example.com/extension-apiserver/internal/frontproxy"
)

// flowControl names priority and fairness in the table below; it is a feature, not an admission plugin.
const flowControl = "APIPriorityAndFairness"

// requiredAPI is an API of the cluster that a part of the server reads through an informer, or writes. A subresource stands
// behind a slash, as in discovery and in RBAC. The versions are those that the libraries at v0.37 ask for.
type requiredAPI struct {
	part     string
	resource schema.GroupVersionResource
	verbs    []string
	// namespace and name are those of the only object that is read; empty means all.
	namespace, name string
}

// requiredAPIs is the one list of them; manifests/base/rbac.yaml grants exactly these.
var requiredAPIs = []requiredAPI{
	{part: lifecycle.PluginName, resource: schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, verbs: []string{"get", "list", "watch"}},
	{part: mutatingpolicy.PluginName, resource: admissionregistration("mutatingadmissionpolicies"), verbs: []string{"list", "watch"}},
	{part: mutatingpolicy.PluginName, resource: admissionregistration("mutatingadmissionpolicybindings"), verbs: []string{"list", "watch"}},
	{part: mutatingwebhook.PluginName, resource: admissionregistration("mutatingwebhookconfigurations"), verbs: []string{"list", "watch"}},
	{part: validatingpolicy.PluginName, resource: admissionregistration("validatingadmissionpolicies"), verbs: []string{"list", "watch"}},
	{part: validatingpolicy.PluginName, resource: admissionregistration("validatingadmissionpolicybindings"), verbs: []string{"list", "watch"}},
	{part: validatingwebhook.PluginName, resource: admissionregistration("validatingwebhookconfigurations"), verbs: []string{"list", "watch"}},
	// It is kube-controller-manager that counts; admission adds what it lets in to the status, or refuses.
	{part: resourcequota.PluginName, resource: schema.GroupVersionResource{Version: "v1", Resource: "resourcequotas"}, verbs: []string{"list", "watch"}},
	{part: resourcequota.PluginName, resource: schema.GroupVersionResource{Version: "v1", Resource: "resourcequotas/status"}, verbs: []string{"update"}},
	{part: flowControl, resource: schema.GroupVersionResource{Group: "flowcontrol.apiserver.k8s.io", Version: "v1", Resource: "flowschemas"}, verbs: []string{"list", "watch"}},
	{part: flowControl, resource: schema.GroupVersionResource{Group: "flowcontrol.apiserver.k8s.io", Version: "v1", Resource: "prioritylevelconfigurations"}, verbs: []string{"list", "watch"}},
}

// What the server needs to authenticate and authorize requests: the reviews, which the ClusterRole
// system:auth-delegator grants, and the ConfigMap, which a Role in kube-system grants. When the right
// to read the ConfigMap is taken away, the library goes on with what it read last.
var (
	accessReviews = requiredAPI{part: "authorization", resource: schema.GroupVersionResource{Group: "authorization.k8s.io", Version: "v1", Resource: "subjectaccessreviews"}, verbs: []string{"create"}}
	tokenReviews  = requiredAPI{part: "bearer tokens", resource: schema.GroupVersionResource{Group: "authentication.k8s.io", Version: "v1", Resource: "tokenreviews"}, verbs: []string{"create"}}
	trustReads    = requiredAPI{part: "the front proxy's trust", resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, verbs: []string{"list", "watch"},
		namespace: metav1.NamespaceSystem, name: frontproxy.ConfigMapName}
)

func admissionregistration(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: resource}
}

// findUnserved asks discovery which of the required APIs the cluster does not serve, and returns the parts of the server
// that need one of those.
func findUnserved(client kubernetes.Interface) (sets.Set[string], error) {
	parts := sets.New[string]()
	missing := map[string][]string{} // by part
	served := map[schema.GroupVersion]sets.Set[string]{}
	for _, api := range requiredAPIs {
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
			missing[api.part] = append(missing[api.part], api.resource.String())
			parts.Insert(api.part)
		}
	}
	for _, part := range sets.List(parts) {
		klog.InfoS("This cluster does not serve APIs; the part of the server that needs them stays off until the server restarts", "part", part, "apis", missing[part])
	}
	return parts, nil
}
