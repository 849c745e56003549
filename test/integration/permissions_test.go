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

// TestMissingPermission: a server without a right that its admission needs is not ready, refuses writes and names the
// right, whichever it is and whether it was never there or is taken away. Once all are granted, all is well without a
// restart.
func TestMissingPermission(t *testing.T) {
	t.Parallel()
	// Identity and authorization are delegated with other credentials: it is the rights of --kubeconfig that count.
	kubeconfig, delegated := newAccount(t, "few-rights"), sharedKubeconfig(t)
	s := serve(t, "--kubeconfig="+kubeconfig, "--authentication-kubeconfig="+delegated,
		"--authorization-kubeconfig="+delegated)
	rights := manifestRights(t)
	if olderMinor() {
		// of an API that is not served
		rights = slices.DeleteFunc(rights, func(r right) bool {
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
	// refused waits for a 503 that names exactly these rights.
	refused := func(when string, want ...string) {
		t.Helper()
		shared.Eventually(t, "an answer to a write "+when, envtest.Patience, func(context.Context) error {
			status, body := write()
			if diff := cmp.Diff(want, missingRights(body)); diff != "" || status != http.StatusServiceUnavailable {
				return fmt.Errorf("%d %s, want 503; missing rights (-want +got):\n%s", status, body, diff)
			}
			return nil
		})
		if status, body := directRequest(t, shared, s.url, nil, http.MethodGet, "/readyz?verbose", nil,
			nil); status != http.StatusInternalServerError ||
			!strings.Contains(body, "[-]permissions failed") {
			t.Errorf("/readyz %s: %d %s, want 500 that names the check permissions", when, status, body)
		}
		// A restart does not help.
		if status, body := directRequest(t, shared, s.url, nil, http.MethodGet, "/livez?verbose", nil,
			nil); status != http.StatusOK {
			t.Errorf("/livez %s: %d %s, want 200", when, status, body)
		}
	}

	names := make([]string, len(rights))
	for i, right := range rights {
		names[i] = right.name
	}
	refused("without any right", names...)
	for _, name := range names {
		if !strings.Contains(s.String(), name+" (for ") {
			t.Errorf("the log does not name %s:\n%s", name, s)
		}
	}
	// One is always missing, so the server looks every second. The others are granted.
	set := grantTo(t, "few-rights")
	for i, right := range rights {
		set(slices.Delete(slices.Clone(rights), i, i+1))
		refused("without "+right.name, right.name)
	}
	set(rights)
	shared.Eventually(t, "the server to be ready after the grant", 2*envtest.Patience, func(context.Context) error {
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

// right is one verb on one resource.
type right struct {
	// name is how the server calls it.
	name string
	rule rbacv1.PolicyRule
}

// manifestRights are the rights of the roles in the manifests, one by one, sorted by name, for an account in the
// namespace default.
func manifestRights(t *testing.T) []right {
	t.Helper()
	var data []byte
	for _, file := range []string{"manifests/base/rbac.yaml", "sample/manifests/api/apiservices.yaml"} {
		text, err := os.ReadFile(filepath.Join("..", "..", file))
		if err != nil {
			t.Fatal(err)
		}
		data = append(append(data, "\n---\n"...), text...)
	}
	var rights []right
	for doc := range strings.SplitSeq(string(data), "\n---\n") {
		var role rbacv1.ClusterRole
		if err := yaml.Unmarshal([]byte(doc), &role); err != nil {
			t.Fatal(err)
		}
		namespace := ""
		switch {
		case role.Kind == "Role":
			namespace = " in the namespace default"
		case role.Kind != "ClusterRole" || role.Name == "apiserver-own-api": // of which nothing is missing at the start
			continue
		}
		for _, rule := range role.Rules {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					rights = append(rights, right{
						strings.Join(append([]string{verb,
							schema.GroupResource{Group: rule.APIGroups[0], Resource: resource}.String()}, rule.ResourceNames...), " ") + namespace,
						rbacv1.PolicyRule{APIGroups: rule.APIGroups, Resources: []string{resource},
							ResourceNames: rule.ResourceNames, Verbs: []string{verb}},
					})
				}
			}
		}
	}
	if len(rights) == 0 {
		t.Fatal("no rights in manifests/base/rbac.yaml")
	}
	slices.SortFunc(rights, func(a, b right) int { return strings.Compare(a.name, b.name) })
	return rights
}

// TestEnvtestRights: a server of envtest has the rights of the options, and no others.
func TestEnvtestRights(t *testing.T) {
	t.Parallel()
	e := envtest.New(t, envtest.Options{ServerRights: []rbacv1.PolicyRule{
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

// missingRights are those that the server says it lacks, in a Status or nil, sorted.
func missingRights(body string) []string {
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
	return names
}

// grantTo gives a ServiceAccount of the namespace default a ClusterRole, and returns a function that sets what is in
// it.
func grantTo(t *testing.T, account string) func([]right) {
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
	return func(rights []right) {
		t.Helper()
		role.Rules = nil
		for _, right := range rights {
			role.Rules = append(role.Rules, right.rule)
		}
		if _, err := rbac.ClusterRoles().Update(t.Context(), role, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}
