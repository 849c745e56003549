// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"

	"example.com/extension-apiserver/internal/certs/verify"
)

// right is a verb on a resource, in a namespace or with an empty one everywhere.
type right struct{ group, resource, namespace, verb string }

func (r right) String() string {
	where := "in the cluster"
	if r.namespace != "" {
		where = "in the namespace " + r.namespace
	}
	return fmt.Sprintf("%s %s.%s %s", r.verb, r.resource, r.group, where)
}

// checkRBAC: exactly what is used is granted, to the user of the server's kubeconfig and to the agents' ServiceAccount.
func checkRBAC(s *set) []verify.Finding {
	var out []verify.Finding
	// Roles exist in the cluster of the agents, which may be another one than the server's manifests are for.
	for _, p := range s.servers {
		var want []right
		if usesTokens(p) {
			want = append(want, right{"authentication.k8s.io", "tokenreviews", "", "create"})
		}
		if p.options.isSet("enable-lease-controller") {
			for _, verb := range []string{"get", "list", "create", "update", "delete"} {
				want = append(want, right{"coordination.k8s.io", "leases", p.options.text("lease-namespace"), verb})
			}
		}
		user := s.readKubeconfig(p).userName(s)
		isUser := func(subject rbacv1.Subject) bool { return subject.Kind == rbacv1.UserKind && subject.Name == user }
		out = append(out, s.compareRights(p.String(), "user "+user, isUser, want)...)
	}
	for _, p := range s.agents {
		var want []right
		if p.options.isSet("count-server-leases") {
			for _, verb := range []string{"list", "watch"} {
				want = append(want, right{"coordination.k8s.io", "leases", p.options.text("lease-namespace"), verb})
			}
		}
		isAgent := func(subject rbacv1.Subject) bool {
			return subject.Kind == rbacv1.ServiceAccountKind && subject.Name == p.pod.Spec.ServiceAccountName && subject.Namespace == p.meta.Namespace
		}
		out = append(out, s.compareRights(p.String(), "ServiceAccount "+p.meta.Namespace+"/"+p.pod.Spec.ServiceAccountName, isAgent, want)...)
	}
	return out
}

func (s *set) compareRights(object, who string, is func(rbacv1.Subject) bool, want []right) []verify.Finding {
	granted := s.rights(is)
	var out []verify.Finding
	for _, r := range want {
		everywhere := r
		everywhere.namespace = ""
		if !slices.Contains(granted, r) && !slices.Contains(granted, everywhere) {
			out = append(out, finding(object, "%s may not %s", who, r))
		}
	}
	for _, r := range granted {
		if !slices.Contains(want, r) {
			out = append(out, verify.Finding{Object: object, Severity: verify.Warning,
				Evidence: fmt.Sprintf("%s may %s, which it never does", who, r), Fix: "take the right away"})
		}
	}
	return out
}

// rights are all that the bindings here give to a subject. Of the ClusterRoles of Kubernetes itself, only the one that konnectivity's
// documentation binds is known.
func (s *set) rights(is func(rbacv1.Subject) bool) []right {
	rules := map[string][]rbacv1.PolicyRule{"ClusterRole//system:auth-delegator": {
		{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"tokenreviews"}, Verbs: []string{"create"}},
		{APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"subjectaccessreviews"}, Verbs: []string{"create"}},
	}}
	for _, r := range all[*rbacv1.ClusterRole](s) {
		rules["ClusterRole//"+r.Name] = r.Rules
	}
	for _, r := range all[*rbacv1.Role](s) {
		rules["Role/"+r.Namespace+"/"+r.Name] = r.Rules
	}
	var out []right
	bind := func(namespace string, ref rbacv1.RoleRef, subjects []rbacv1.Subject) {
		if !slices.ContainsFunc(subjects, is) {
			return
		}
		key := ref.Kind + "/" + namespace + "/" + ref.Name
		if ref.Kind == "ClusterRole" {
			key = "ClusterRole//" + ref.Name
		}
		for _, rule := range rules[key] {
			out = append(out, flatten(namespace, rule)...)
		}
	}
	for _, b := range all[*rbacv1.ClusterRoleBinding](s) {
		bind("", b.RoleRef, b.Subjects)
	}
	for _, b := range all[*rbacv1.RoleBinding](s) {
		bind(b.Namespace, b.RoleRef, b.Subjects)
	}
	return out
}

func flatten(namespace string, rule rbacv1.PolicyRule) []right {
	if len(rule.NonResourceURLs) > 0 {
		return []right{{"", strings.Join(rule.NonResourceURLs, " "), namespace, strings.Join(rule.Verbs, ",")}}
	}
	var out []right
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				out = append(out, right{group, resource, namespace, verb})
			}
		}
	}
	return out
}
