// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"example.com/extension-apiserver/pkg/envtest"
	"example.com/extension-apiserver/test/manifests/permissions"
)

// TestPermissions checks that the server and its agents use exactly the permissions that
// konnectivity/ grants, by the audit log of kube-apiserver: nothing was forbidden, and no
// permission is unused.
func TestPermissions(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	log := filepath.Join(dir, "audit.log")
	args, err := permissions.KubeAPIServerArgs(dir, log)
	if err != nil {
		t.Fatal(err)
	}
	e := start(t, envtest.Options{
		Network: envtest.EndpointRouting, Unregistered: true, KubeAPIServerArgs: args,
		Tunnels: []envtest.Tunnel{{Mode: envtest.GRPCOverUDS, Agents: 1}},
	})
	k, client := only(e), e.Client(t)
	// Both had their permissions at their first start, but kube-apiserver may have applied them a
	// moment later. So the test checks their requests after a restart.
	leased(t, e)
	k.Agents[0].Kill()
	if err := k.ProxyServer.Stop(); err != nil {
		t.Fatal(err)
	}
	seen := len(auditLog(t, log))
	if err := errors.Join(k.ProxyServer.Start(t.Context()), k.Agents[0].Start(t.Context())); err != nil {
		t.Fatal(err)
	}
	server := rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "system:konnectivity-server"}
	agent := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "kube-system", Name: "konnectivity-agent"}
	agentUser := "system:serviceaccount:kube-system:konnectivity-agent"
	serverPermissions, agentPermissions := granted(t, client, server), granted(t, client, agent)
	t.Logf("granted to the server: %q, to the agents: %q", serverPermissions, agentPermissions)

	// The server renews its Lease every 15 s.
	const update = "update leases.coordination.k8s.io"
	e.Eventually(t, "the server to renew its Lease, and its agent to watch it", envtest.WaitTimeout,
		func(context.Context) error {
			data := auditLog(t, log)[seen:]
			onlyUpdates := slices.DeleteFunc(slices.Clone(serverPermissions),
				func(permission string) bool { return permission != update })
			return errors.Join(append(permissions.Compare(server.Name, data, onlyUpdates, nil),
				permissions.Compare(agentUser, data, agentPermissions, nil)...)...)
		})
	// The server deletes its Lease when it stops.
	if err := k.ProxyServer.Stop(); err != nil {
		t.Fatal(err)
	}
	data := auditLog(t, log)[seen:]
	for _, err := range append(permissions.Compare(server.Name, data, serverPermissions, nil),
		permissions.Compare(agentUser, data, agentPermissions, nil)...) {
		t.Error(err)
	}
}

func auditLog(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// granted lists the permissions that bindings in the cluster grant to the subject itself.
func granted(t *testing.T, client kubernetes.Interface, subject rbacv1.Subject) []string {
	t.Helper()
	rbac, ctx := client.RbacV1(), t.Context()
	everywhere, err1 := rbac.ClusterRoleBindings().List(ctx, metav1.ListOptions{})
	inNamespaces, err2 := rbac.RoleBindings("").List(ctx, metav1.ListOptions{})
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	var out []string
	add := func(namespace string, rules []rbacv1.PolicyRule, err error) {
		flat, flatErr := permissions.Flatten(namespace, rules)
		if err := errors.Join(err, flatErr); err != nil {
			t.Fatal(err)
		}
		out = append(out, flat...)
	}
	bindings := inNamespaces.Items
	for _, b := range everywhere.Items {
		bindings = append(bindings, rbacv1.RoleBinding{Subjects: b.Subjects, RoleRef: b.RoleRef})
	}
	for _, b := range bindings {
		if !slices.Contains(b.Subjects, subject) {
			continue
		}
		if b.RoleRef.Kind == "ClusterRole" {
			role, err := rbac.ClusterRoles().Get(ctx, b.RoleRef.Name, metav1.GetOptions{})
			add(b.Namespace, role.Rules, err)
		} else {
			role, err := rbac.Roles(b.Namespace).Get(ctx, b.RoleRef.Name, metav1.GetOptions{})
			add(b.Namespace, role.Rules, err)
		}
	}
	if len(out) == 0 {
		t.Fatalf("nothing is granted to %s %s/%s", subject.Kind, subject.Namespace, subject.Name)
	}
	return out
}
