// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"example.com/extension-apiserver/pkg/envtest"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"example.com/extension-apiserver/internal/certs"
)

// TestMissingPermission checks a server that lacks a permission that its admission needs. The
// server is not ready, rejects writes and names the permission, for each permission, and whether
// it was missing from the start or removed later. When all permissions are granted, the server
// recovers without a restart.
func TestMissingPermission(t *testing.T) {
	t.Parallel()
	// Authentication and authorization use other credentials, so only the permissions of
	// --kubeconfig matter.
	kubeconfig, delegated := newAccount(t, "few-permissions"), sharedKubeconfig(t)
	s := serve(t, "--kubeconfig="+kubeconfig, "--authentication-kubeconfig="+delegated,
		"--authorization-kubeconfig="+delegated)
	permissions := manifestPermissions(t)
	if olderMinor() {
		// These are permissions for an API that is not served.
		permissions = slices.DeleteFunc(permissions, func(r permission) bool {
			return strings.Contains(r.name, " mutatingadmissionpolic")
		})
	}
	proxy := issue(t, readCA(t, shared, certs.FrontProxyCADir), certs.FrontProxyUser)
	write := func() (int, string) {
		return directRequest(t, shared, s.url, proxy, http.MethodPost,
			"/apis/"+gadgetCase.resource.GroupVersion().String()+"/gadgets?dryRun=All",
			http.Header{"X-Remote-User": {"admin"}, "X-Remote-Group": {"system:masters"}},
			[]byte(named(t, "gadget.yaml", "g")))
	}
	// refused waits for a 503 response that names exactly these permissions.
	refused := func(when string, want ...string) {
		t.Helper()
		shared.Eventually(t, "a response to a write "+when, envtest.WaitTimeout, func(context.Context) error {
			status, body := write()
			if diff := cmp.Diff(want, missingPermissions(body)); diff != "" || status != http.StatusServiceUnavailable {
				return fmt.Errorf("%d %s, want 503; missing permissions (-want +got):\n%s", status, body, diff)
			}
			return nil
		})
		if status, body := directRequest(t, shared, s.url, nil, http.MethodGet, "/readyz?verbose", nil,
			nil); status != http.StatusInternalServerError ||
			!strings.Contains(body, "[-]permissions failed") {
			t.Errorf("/readyz %s: %d %s, want 500 that names the check permissions", when, status, body)
		}
		// A restart would not help, so the server stays live.
		if status, body := directRequest(t, shared, s.url, nil, http.MethodGet, "/livez?verbose", nil,
			nil); status != http.StatusOK {
			t.Errorf("/livez %s: %d %s, want 200", when, status, body)
		}
	}

	names := make([]string, len(permissions))
	for i, permission := range permissions {
		names[i] = permission.name
	}
	refused("without any permission", names...)
	for _, name := range names {
		if !strings.Contains(s.String(), name+" (for ") {
			t.Errorf("the log does not name %s:\n%s", name, s)
		}
	}
	// In each step one permission is missing, so the server checks every second. All others are
	// granted.
	set := grantTo(t, "few-permissions")
	for i, permission := range permissions {
		set(slices.Delete(slices.Clone(permissions), i, i+1))
		refused("without "+permission.name, permission.name)
	}
	set(permissions)
	shared.Eventually(t, "the server to be ready after the grant", 2*envtest.WaitTimeout, func(context.Context) error {
		if status, body := directRequest(t, shared, s.url, nil, http.MethodGet, "/readyz?verbose", nil,
			nil); status != http.StatusOK {
			return fmt.Errorf("%d %s", status, body)
		}
		return nil
	})
	if status, body := write(); status != http.StatusCreated {
		t.Errorf("write after the grant: %d %s, want 201", status, body)
	}
}

// permission is the permission for one verb on one resource.
type permission struct {
	// name is the server's name for the permission.
	name string
	rule rbacv1.PolicyRule
}

// manifestPermissions returns the permissions of the roles in the manifests, one by one, sorted by
// name, for an account in the namespace default.
func manifestPermissions(t *testing.T) []permission {
	t.Helper()
	var data []byte
	for _, file := range []string{"manifests/base/rbac.yaml", "sample/manifests/api/apiservices.yaml"} {
		text, err := os.ReadFile(filepath.Join("..", "..", file))
		if err != nil {
			t.Fatal(err)
		}
		data = append(append(data, "\n---\n"...), text...)
	}
	var permissions []permission
	for doc := range strings.SplitSeq(string(data), "\n---\n") {
		var role rbacv1.ClusterRole
		if err := yaml.Unmarshal([]byte(doc), &role); err != nil {
			t.Fatal(err)
		}
		namespace := ""
		switch {
		case role.Kind == "Role":
			namespace = " in the namespace default"
		case role.Kind != "ClusterRole" || role.Name == "apiserver-own-api": // these are not missing at the start
			continue
		}
		for _, rule := range role.Rules {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					permissions = append(permissions, permission{
						strings.Join(append([]string{verb,
							schema.GroupResource{Group: rule.APIGroups[0], Resource: resource}.String()}, rule.ResourceNames...), " ") + namespace,
						rbacv1.PolicyRule{APIGroups: rule.APIGroups, Resources: []string{resource},
							ResourceNames: rule.ResourceNames, Verbs: []string{verb}},
					})
				}
			}
		}
	}
	if len(permissions) == 0 {
		t.Fatal("no permissions in manifests/base/rbac.yaml")
	}
	slices.SortFunc(permissions, func(a, b permission) int { return strings.Compare(a.name, b.name) })
	return slices.CompactFunc(permissions, func(a, b permission) bool { return a.name == b.name })
}

// TestEnvtestPermissions checks that a server of envtest has exactly the permissions of the
// options.
func TestEnvtestPermissions(t *testing.T) {
	t.Parallel()
	e := envtest.New(t, envtest.Options{ServerPermissions: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list"}}}})
	kubeconfig, err := e.AccountKubeconfig(t.Context(), envtest.Namespace, "extension-apiserver")
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	pods := kubernetes.NewForConfigOrDie(config).CoreV1().Pods("")
	if _, err := pods.List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := pods.Watch(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("watch: got %v, want it forbidden", err)
	}
}

// missingPermissions returns the permissions that the Status reports as missing, sorted. It returns
// nil if the body is not such a Status.
func missingPermissions(body string) []string {
	var status metav1.Status
	if err := json.Unmarshal([]byte(body), &status); err != nil {
		return nil
	}
	list, _ := strings.CutPrefix(status.Message, "this server lacks permissions: ")
	list, _, found := strings.Cut(list, "; grant ")
	if !found {
		return nil
	}
	var names []string
	for entry := range strings.SplitSeq(list, ", ") {
		name, _, _ := strings.Cut(entry, " (for ")
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.Compact(names) // the kit and a plugin may need the same
}

// grantTo binds a ClusterRole to a ServiceAccount in the namespace default. It returns a function
// that sets the role's permissions.
func grantTo(t *testing.T, account string) func([]permission) {
	t.Helper()
	rbac := shared.Client(t).RbacV1()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: account}}
	if _, err := rbac.ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: account},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: account}},
	}
	if _, err := rbac.ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return func(permissions []permission) {
		t.Helper()
		role.Rules = nil
		for _, permission := range permissions {
			role.Rules = append(role.Rules, permission.rule)
		}
		if _, err := rbac.ClusterRoles().Update(t.Context(), role, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}
