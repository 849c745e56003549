// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/registry/rest"

	"example.com/extension-apiserver/pkg/registry"
)

// Roles returns ClusterRoles that Kubernetes aggregates to the roles view, edit and admin of
// every namespace. Their names are PREFIX-view, PREFIX-edit and PREFIX-admin. Each contains only
// the permissions that the previous one lacks:
//
//   - view reads the kinds, their status and their scale.
//   - edit writes the kinds and their scale.
//   - admin uses all other subresources: actions, logs, streams and custom subresources.
//
// No role can write a status, because controllers write it. No role has verbs that Authorize of a
// kind requires in addition to the verb of the request. Cluster-scoped kinds need a
// ClusterRoleBinding.
func (a API) Roles(prefix string) ([]*rbacv1.ClusterRole, error) {
	scheme, err := a.NewScheme()
	if err != nil {
		return nil, err
	}
	roles := map[string]*rbacv1.ClusterRole{}
	for _, name := range []string{"view", "edit", "admin"} {
		roles[name] = &rbacv1.ClusterRole{
			TypeMeta: metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole"},
			ObjectMeta: metav1.ObjectMeta{Name: prefix + "-" + name,
				Labels: map[string]string{rbacv1.GroupName + "/aggregate-to-" + name: "true"}},
		}
	}
	for _, g := range a.Groups {
		g.IdentityReview = "" // every user may create one
		info, err := g.apiGroupInfo(scheme, serializer.NewCodecFactory(scheme), registry.Unconnected{}, nil)
		if err != nil {
			return nil, err
		}
		storages := map[string]rest.Storage{}
		for _, ofVersion := range info.VersionedResourcesStorageMap {
			maps.Copy(storages, ofVersion)
		}
		for _, path := range slices.Sorted(maps.Keys(storages)) {
			for role, verbs := range verbsByRole(path, storages[path]) {
				roles[role].Rules = append(roles[role].Rules, rbacv1.PolicyRule{APIGroups: []string{g.Name},
					Resources: []string{path}, Verbs: verbs})
			}
		}
	}
	var out []*rbacv1.ClusterRole
	for _, name := range []string{"view", "edit", "admin"} {
		if len(roles[name].Rules) > 0 {
			out = append(out, roles[name])
		}
	}
	if len(out) == 0 {
		return nil, errors.New("write roles: the API has no kind for users")
	}
	return out, nil
}

// verbsByRole returns, by role, the verbs that the role has for a resource or subresource.
func verbsByRole(path string, storage rest.Storage) map[string][]string {
	_, subresource, _ := strings.Cut(path, "/")
	verbs := map[string][]string{}
	for _, verb := range verbsOf(subresource, storage) {
		role := "edit"
		switch {
		case !slices.Contains([]string{"", "status", "scale"}, subresource):
			role = "admin"
		case slices.Contains([]string{"get", "list", "watch"}, verb):
			role = "view"
		case subresource == "status":
			continue
		}
		verbs[role] = append(verbs[role], verb)
	}
	return verbs
}

// verbsOf returns the request verbs that a storage serves, determined in the same way as in the
// library.
func verbsOf(subresource string, storage rest.Storage) []string {
	_, getter := storage.(rest.Getter)
	_, getterWithOptions := storage.(rest.GetterWithOptions)
	_, lister := storage.(rest.Lister)
	_, watcher := storage.(rest.Watcher)
	_, creater := storage.(rest.Creater)
	_, namedCreater := storage.(rest.NamedCreater)
	_, updater := storage.(rest.Updater)
	_, patcher := storage.(rest.Patcher)
	_, deleter := storage.(rest.GracefulDeleter)
	_, collectionDeleter := storage.(rest.CollectionDeleter)
	connects := func(method string) bool {
		connecter, ok := storage.(rest.Connecter)
		return ok && slices.Contains(connecter.ConnectMethods(), method)
	}
	var verbs []string
	for _, v := range []struct {
		verb   string
		served bool
	}{
		{"get", getter || getterWithOptions || connects(http.MethodGet)},
		{"list", lister}, {"watch", watcher},
		// A stream begins with a GET, and also needs the permission to create.
		{"create", creater || namedCreater || connects(http.MethodPost) ||
			connects(http.MethodGet) && subresource != "log"},
		{"update", updater || connects(http.MethodPut)},
		{"patch", patcher || connects(http.MethodPatch)},
		{"delete", deleter || connects(http.MethodDelete)},
		{"deletecollection", collectionDeleter},
	} {
		if v.served {
			verbs = append(verbs, v.verb)
		}
	}
	return verbs
}
