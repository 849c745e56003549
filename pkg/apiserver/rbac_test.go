// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/yaml"
)

// TestRBAC: the ClusterRole of the manifests grants exactly the permissions for the APIs that the
// server requires. With fewer, the server would never be ready.
func TestRBAC(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "..", "manifests", "base", "rbac.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	granted := sets.New[string]()
	roles := 0
	for doc := range bytes.SplitSeq(data, []byte("\n---\n")) {
		var role rbacv1.ClusterRole
		if err := yaml.Unmarshal(doc, &role); err != nil {
			t.Fatal(err)
		}
		if role.Kind != "ClusterRole" {
			continue
		}
		roles++
		for _, rule := range role.Rules {
			if len(rule.ResourceNames)+len(rule.NonResourceURLs) > 0 {
				t.Errorf("rule %v: got names or URLs, want resources only: an informer lists all of them", rule)
			}
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, verb := range rule.Verbs {
						granted.Insert(verb + " " + group + "/" + resource)
					}
				}
			}
		}
	}
	if roles != 1 {
		t.Errorf("ClusterRoles in rbac.yaml: got %d, want 1", roles)
	}
	needed := sets.New[string]()
	for _, api := range requiredAPIs {
		for _, verb := range api.verbs {
			needed.Insert(verb + " " + api.resource.Group + "/" + api.resource.Resource)
		}
	}
	if diff := cmp.Diff(sets.List(needed), sets.List(granted)); diff != "" {
		t.Errorf("permissions (-requiredAPIs +rbac.yaml):\n%s", diff)
	}
}
