// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

const manifestHeader = `# Generated from the API: its versions as APIServices, without a caBundle, which a component for certificates fills in,
# the permission of the server to read its own API, for admission policies that have parameters in it, and the
# permissions that its plugins and hooks need. The first object is not applied: components write from it what belongs to
# an API.
`

// The names in manifests/base, to which a project's prefix and namespace are applied.
const baseService, baseNamespace = "apiserver", "system"

// Manifest returns the part of a project's kustomizations that depends on its API. It contains the
// APIServices of the versions for the Service in manifests/base, the preferred version of each
// group first, and the server's permission to read the API. It also contains the permissions that
// the hooks of the API need in the cluster and in the server's namespace, and the values that
// components of manifests/ need.
func Manifest(versions []schema.GroupVersion, permissions, inNamespace []rbacv1.PolicyRule) ([]byte, error) {
	services := APIServices(versions, Backend{Namespace: baseNamespace, Name: baseService})
	var names, groups []string
	for _, service := range services {
		names = append(names, service.Name)
		if !slices.Contains(groups, service.Spec.Group) {
			groups = append(groups, service.Spec.Group)
		}
	}
	objects := []any{map[string]any{
		"apiVersion": "manifests.extension-apiserver/v1",
		"kind":       "API",
		"metadata": map[string]any{
			"name": "api",
			// kustomize uses such objects but does not render them.
			"annotations": map[string]any{"config.kubernetes.io/local-config": "true"},
		},
		"apiServices": names,                    // for a list
		"names":       strings.Join(names, ","), // for an argument
		"pattern":     strings.ReplaceAll(strings.Join(names, "|"), ".", "[.]"),
		// This is between quotes in the audit policy, where each entry covers one group.
		"auditGroups": strings.Join(groups, "'}, {resources: *secret, group: '"),
	}}
	role, binding := Reader(versions, baseService, "") // kustomize fills in the namespace
	objects = append(objects, role, binding)
	if len(permissions) > 0 {
		role, binding := clusterRole(baseService+"-hooks", baseService, "", permissions)
		objects = append(objects, role, binding)
	}
	if len(inNamespace) > 0 {
		objects = append(objects, namespacedRole(baseService+"-hooks", baseService, inNamespace)...)
	}
	for _, service := range services {
		objects = append(objects, service)
	}
	out := bytes.NewBufferString(manifestHeader)
	for _, object := range objects {
		data, err := yaml.Marshal(object)
		if err != nil {
			return nil, fmt.Errorf("encode manifest: %w", err)
		}
		fmt.Fprintf(out, "---\n%s", data)
	}
	return out.Bytes(), nil
}

// namespacedRole returns a role with the rules, in the namespace that kustomize fills in, and its
// binding to a ServiceAccount there.
func namespacedRole(name, account string, rules []rbacv1.PolicyRule) []any {
	version := rbacv1.SchemeGroupVersion.String()
	return []any{
		&rbacv1.Role{
			TypeMeta:   metav1.TypeMeta{APIVersion: version, Kind: "Role"},
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Rules:      rules,
		},
		&rbacv1.RoleBinding{
			TypeMeta:   metav1.TypeMeta{APIVersion: version, Kind: "RoleBinding"},
			ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: account}},
		},
	}
}
