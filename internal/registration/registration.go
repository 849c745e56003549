// SPDX-License-Identifier: Apache-2.0

// Package registration registers an API with the aggregation layer of kube-apiserver: it creates
// the APIServices of its versions, applies them, and checks whether clients can use the API.
package registration

import (
	"bytes"
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/openapi"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistration "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"
)

const (
	// groupPriority is the lowest useful priority. If two groups have a resource of the same name,
	// kubectl prefers the group with the higher number, and an extension must never take a name
	// from a built-in group.
	groupPriority = 1000
	// firstVersionPriority is the priority of the preferred version. Each further version has 10
	// less.
	firstVersionPriority = 100
)

// Backend is the Service in front of the server, and the CA that signed its serving certificate.
type Backend struct {
	Namespace, Name string
	// Port of the Service; 0 means 443.
	Port int32
	// CABundle is PEM. It is required: an APIService without it trusts the system's roots.
	CABundle []byte
}

// APIServices returns one APIService for each of the versions, the preferred one first.
func APIServices(versions []schema.GroupVersion, backend Backend) []*apiregistrationv1.APIService {
	port := backend.Port
	if port == 0 {
		port = 443
	}
	var all []*apiregistrationv1.APIService
	for i, gv := range versions {
		all = append(all, &apiregistrationv1.APIService{
			TypeMeta:   metav1.TypeMeta{APIVersion: apiregistrationv1.SchemeGroupVersion.String(), Kind: "APIService"},
			ObjectMeta: metav1.ObjectMeta{Name: gv.Version + "." + gv.Group},
			Spec: apiregistrationv1.APIServiceSpec{
				Group:                gv.Group,
				Version:              gv.Version,
				GroupPriorityMinimum: groupPriority,
				VersionPriority:      int32(firstVersionPriority - 10*i),
				Service: &apiregistrationv1.ServiceReference{Namespace: backend.Namespace,
					Name: backend.Name, Port: &port},
				CABundle: backend.CABundle,
			},
		})
	}
	return all
}

// Reader returns the role and the binding with which a server's ServiceAccount may read the groups
// that the server serves. An admission policy may have its parameters in them, and the server
// reads these through kube-apiserver.
func Reader(versions []schema.GroupVersion, account,
	namespace string) (*rbacv1.ClusterRole, *rbacv1.ClusterRoleBinding) {
	groups := sets.New[string]()
	for _, gv := range versions {
		groups.Insert(gv.Group)
	}
	return clusterRole(account+"-own-api", account, namespace, []rbacv1.PolicyRule{{APIGroups: sets.List(groups),
		Resources: []string{"*"}, Verbs: []string{"get", "list", "watch"}}})
}

// clusterRole returns a role with the rules, and its binding to a ServiceAccount.
func clusterRole(name, account, namespace string,
	rules []rbacv1.PolicyRule) (*rbacv1.ClusterRole, *rbacv1.ClusterRoleBinding) {
	role := &rbacv1.ClusterRole{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules:      rules,
	}
	binding := &rbacv1.ClusterRoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRoleBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: account, Namespace: namespace}},
	}
	return role, binding
}

// Apply creates the APIServices, or updates the spec of those that already exist.
func Apply(ctx context.Context, client apiregistration.APIServiceInterface,
	services []*apiregistrationv1.APIService) error {
	for _, want := range services {
		_, err := client.Create(ctx, want, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			var have *apiregistrationv1.APIService
			if have, err = client.Get(ctx, want.Name, metav1.GetOptions{}); err == nil {
				have.Spec = want.Spec
				_, err = client.Update(ctx, have, metav1.UpdateOptions{})
			}
		}
		if err != nil {
			return fmt.Errorf("apply APIService %s: %w", want.Name, err)
		}
	}
	return nil
}

// CheckAvailable returns nil if each APIService has the condition Available. That alone proves
// little: one successful response of five is enough for it, and kube-apiserver's discovery follows
// later.
func CheckAvailable(ctx context.Context, client apiregistration.APIServiceInterface,
	services []*apiregistrationv1.APIService) error {
	for _, want := range services {
		have, err := client.Get(ctx, want.Name, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("get APIService %s: %w", want.Name, err)
		}
		state := "no condition Available yet"
		for _, c := range have.Status.Conditions {
			if c.Type == apiregistrationv1.Available {
				state = fmt.Sprintf("%s (%s) %s", c.Status, c.Reason, c.Message)
				if c.Status == apiregistrationv1.ConditionTrue {
					state = ""
				}
			}
		}
		if state != "" {
			return fmt.Errorf("APIService %s is not available: %s", want.Name, state)
		}
	}
	return nil
}

// Discovered returns nil if the aggregated discovery of kube-apiserver, which clients read, lists
// every version with its resources, and none of them is stale.
func Discovered(client discovery.AggregatedDiscoveryInterface, versions []schema.GroupVersion) error {
	_, resources, failed, err := client.GroupsAndMaybeResources()
	if err != nil {
		return fmt.Errorf("read discovery: %w", err)
	}
	for _, gv := range versions {
		if err := failed[gv]; err != nil {
			return fmt.Errorf("discovery of %s: %w", gv, err)
		}
		if list := resources[gv]; list == nil || len(list.APIResources) == 0 {
			return fmt.Errorf("discovery does not list %s yet", gv)
		}
	}
	return nil
}

// CheckOpenAPI returns nil if kube-apiserver's OpenAPI v3 contains the schema of every version.
// kubectl explain reads it, and so does MutatingAdmissionPolicy in our own server, which rejects
// writes without it.
func CheckOpenAPI(client openapi.Client, versions []schema.GroupVersion) error {
	paths, err := client.Paths()
	if err != nil {
		return fmt.Errorf("read OpenAPI v3: %w", err)
	}
	for _, gv := range versions {
		described, ok := paths["apis/"+gv.String()]
		if !ok {
			return fmt.Errorf("OpenAPI v3 does not list %s yet", gv)
		}
		schema, err := described.Schema(runtime.ContentTypeJSON)
		if err != nil {
			return fmt.Errorf("read OpenAPI v3 of %s: %w", gv, err)
		}
		if !bytes.Contains(schema, []byte(`"/apis/`+gv.String()+`/`)) {
			return fmt.Errorf("OpenAPI v3 of %s has no paths yet", gv)
		}
	}
	return nil
}
