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

// flowControl is the part API Priority and Fairness in requiredAPIs. It is a feature, not an
// admission plugin.
const flowControl = "APIPriorityAndFairness"

// requiredAPI is an API of the cluster that a part of the server reads through an informer, or
// writes. A subresource follows a slash, as in discovery and RBAC. The versions are those that
// the libraries at v0.37 use.
type requiredAPI struct {
	part     string
	resource schema.GroupVersionResource
	verbs    []string
	// namespace and name restrict the permission to one object. Empty means all.
	namespace, name string
}

// requiredAPIs lists all required APIs. manifests/base/rbac.yaml grants exactly these permissions.
var requiredAPIs = []requiredAPI{
	{part: lifecycle.PluginName, resource: schema.GroupVersionResource{Version: "v1", Resource: "namespaces"},
		verbs: []string{"get", "list", "watch"}},
	{part: mutatingpolicy.PluginName, resource: admissionregistration("mutatingadmissionpolicies"),
		verbs: []string{"list", "watch"}},
	{part: mutatingpolicy.PluginName, resource: admissionregistration("mutatingadmissionpolicybindings"),
		verbs: []string{"list", "watch"}},
	{part: mutatingwebhook.PluginName, resource: admissionregistration("mutatingwebhookconfigurations"),
		verbs: []string{"list", "watch"}},
	{part: validatingpolicy.PluginName, resource: admissionregistration("validatingadmissionpolicies"),
		verbs: []string{"list", "watch"}},
	{part: validatingpolicy.PluginName, resource: admissionregistration("validatingadmissionpolicybindings"),
		verbs: []string{"list", "watch"}},
	{part: validatingwebhook.PluginName, resource: admissionregistration("validatingwebhookconfigurations"),
		verbs: []string{"list", "watch"}},
	// kube-controller-manager counts objects. Admission adds the objects that it admits to the
	// status.
	{part: resourcequota.PluginName, resource: schema.GroupVersionResource{Version: "v1", Resource: "resourcequotas"},
		verbs: []string{"list", "watch"}},
	{part: resourcequota.PluginName, resource: schema.GroupVersionResource{Version: "v1",
		Resource: "resourcequotas/status"}, verbs: []string{"update"}},
	{part: flowControl, resource: schema.GroupVersionResource{Group: "flowcontrol.apiserver.k8s.io", Version: "v1",
		Resource: "flowschemas"}, verbs: []string{"list", "watch"}},
	{part: flowControl, resource: schema.GroupVersionResource{Group: "flowcontrol.apiserver.k8s.io", Version: "v1",
		Resource: "prioritylevelconfigurations"}, verbs: []string{"list", "watch"}},
}

// The permissions to authenticate and authorize requests. The ClusterRole system:auth-delegator
// grants the reviews, and a Role in kube-system grants the trust ConfigMap. If the latter is
// revoked, the library continues with the content that it read last.
var (
	accessReviews = requiredAPI{part: "authorization",
		resource: schema.GroupVersionResource{Group: "authorization.k8s.io", Version: "v1",
			Resource: "subjectaccessreviews"}, verbs: []string{"create"}}
	tokenReviews = requiredAPI{part: "bearer tokens",
		resource: schema.GroupVersionResource{Group: "authentication.k8s.io", Version: "v1", Resource: "tokenreviews"},
		verbs:    []string{"create"}}
	trustReads = requiredAPI{part: "the front proxy's trust",
		resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, verbs: []string{"list", "watch"},
		namespace: metav1.NamespaceSystem, name: frontproxy.ConfigMapName}
)

func admissionregistration(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: resource}
}

// findUnserved returns the parts of the server that need an API that the cluster's discovery does
// not list.
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
		klog.InfoS("The cluster does not serve required APIs; the part of the server that needs them is off until the "+
			"server restarts", "part", part, "apis", missing[part])
	}
	return parts, nil
}
