// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// apiServiceProblems checks that APIServices are registered securely, for the server's Service,
// and without a caBundle, which its owner fills in.
func apiServiceProblems(r rendered) []string {
	var problems []string
	all, own := registered(r, r.objects), service(r, r.objects)
	if len(all) == 0 {
		problems = append(problems, "no APIServices")
	}
	for _, a := range all {
		injected := a.Annotations["cert-manager.io/inject-ca-from"]
		withCertManager := slices.Contains(r.variant.components, "certificates-cert-manager")
		switch s := a.Spec.Service; {
		case a.Spec.InsecureSkipTLSVerify:
			problems = append(problems, a.Name+" has insecureSkipTLSVerify")
		case len(a.Spec.CABundle) > 0:
			problems = append(problems, a.Name+" has a caBundle; its owner is certgen or cert-manager")
		case s == nil || s.Name != own.Name || s.Namespace != own.Namespace:
			problems = append(problems, fmt.Sprintf("%s is for the Service %v", a.Name, s))
		case (injected != "") != withCertManager:
			problems = append(problems, fmt.Sprintf("%s: cert-manager injects from %q", a.Name, injected))
		default:
			if !slices.ContainsFunc(own.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == *s.Port }) {
				problems = append(problems, fmt.Sprintf("%s is for port %d, which the Service lacks", a.Name, *s.Port))
			}
		}
	}
	return problems
}

// permissionProblems checks that no permission is broad, that Secrets and writes of APIServices are
// restricted by name, and that the server has only the permissions of the base.
func permissionProblems(r rendered) []string {
	var problems []string
	var ruleSets []rbacv1.ClusterRole
	for _, role := range only[rbacv1.ClusterRole](r, r.objects, "ClusterRole") {
		ruleSets = append(ruleSets, *role)
	}
	for _, role := range only[rbacv1.Role](r, r.objects, "Role") {
		ruleSets = append(ruleSets, rbacv1.ClusterRole{ObjectMeta: role.ObjectMeta, Rules: role.Rules})
	}
	for _, role := range ruleSets {
		for _, rule := range role.Rules {
			words := slices.Concat(rule.APIGroups, rule.Resources, rule.Verbs, rule.NonResourceURLs)
			// The server may read all of its own API.
			if strings.HasSuffix(role.Name, "-own-api") && slices.Equal(rule.Verbs, []string{"get", "list", "watch"}) {
				words = slices.Concat(rule.APIGroups, rule.Verbs)
			}
			for _, broad := range []string{"*", "impersonate", "escalate", "bind", "roles", "clusterroles", "pods/exec",
				"serviceaccounts/token"} {
				if slices.Contains(words, broad) {
					problems = append(problems, fmt.Sprintf("%s has %s", role.Name, broad))
				}
			}
			byName := len(rule.ResourceNames) > 0
			if slices.Contains(rule.Resources, "secrets") &&
				(!byName || slices.Contains(rule.Verbs, "list") || slices.Contains(rule.Verbs, "watch")) {
				problems = append(problems,
					fmt.Sprintf("%s: secrets %v by the names %v, want names, and neither list nor watch", role.Name,
						rule.Verbs, rule.ResourceNames))
			}
			if slices.Contains(rule.Resources, "apiservices") && !byName &&
				!slices.Equal(rule.Verbs, []string{"list"}) {
				problems = append(problems, fmt.Sprintf("%s: apiservices %v without names, want list at most",
					role.Name, rule.Verbs))
			}
		}
	}
	for _, obj := range r.objects {
		if ref, _, _ := nestedString(obj, "roleRef", "name"); ref == "cluster-admin" || ref == "admin" ||
			ref == "edit" {
			problems = append(problems, obj.GetName()+" binds "+ref)
		}
	}
	if got, want := serverPermissions(r, r.objects), serverPermissions(r,
		parse(r, render(r, variant{project: r.variant.project}))); !slices.Equal(got, want) {
		problems = append(problems, fmt.Sprintf("the server's permissions are %v, want those of the base: %v", got, want))
	}
	return problems
}

// runbookProblems checks that each alert has a severity, a summary and a link to a heading that
// exists.
func runbookProblems(r rendered) []string {
	var problems []string
	for _, rule := range alerts(r, r.objects) {
		const prefix = "https://example.com/extension-apiserver/blob/main/"
		path, found := strings.CutPrefix(rule.Annotations["runbook_url"], prefix)
		file, anchor, hasAnchor := strings.Cut(path, "#")
		if !found || !hasAnchor || rule.Labels["severity"] == "" || rule.Annotations["summary"] == "" {
			problems = append(problems, fmt.Sprintf("%s: runbook_url %q, severity %q, summary %q", rule.Alert,
				rule.Annotations["runbook_url"],
				rule.Labels["severity"], rule.Annotations["summary"]))
			continue
		}
		data, err := os.ReadFile(filepath.Join("..", "..", file))
		if err != nil || !slices.Contains(anchors(string(data)), anchor) {
			problems = append(problems, fmt.Sprintf("%s: %s has no heading #%s (%v); it has %v", rule.Alert, file,
				anchor, err, anchors(string(data))))
		}
	}
	return problems
}

// anchors returns the anchors that GitHub gives headings.
func anchors(markdown string) []string {
	var out []string
	for line := range strings.Lines(markdown) {
		if title, ok := strings.CutPrefix(strings.TrimLeft(strings.TrimSpace(line), "#"), " "); ok &&
			strings.HasPrefix(line, "#") {
			out = append(out, strings.Map(func(c rune) rune {
				switch {
				case c == ' ':
					return '-'
				case c == '-' || c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z':
					return c
				}
				return -1
			}, strings.ToLower(title)))
		}
	}
	return out
}

// webhookProblems checks that there are no webhooks, and that admission policies deny.
func webhookProblems(r rendered) []string {
	var problems []string
	for _, obj := range r.objects {
		if strings.HasSuffix(obj.GetKind(), "WebhookConfiguration") {
			problems = append(problems, obj.GetKind()+" "+obj.GetName())
		}
	}
	for _, b := range only[admissionregistrationv1.ValidatingAdmissionPolicyBinding](r, r.objects,
		"ValidatingAdmissionPolicyBinding") {
		if !slices.Contains(b.Spec.ValidationActions, admissionregistrationv1.Deny) {
			problems = append(problems, fmt.Sprintf("%s: %v, want Deny", b.Name, b.Spec.ValidationActions))
		}
	}
	return problems
}

// certgenProblems checks that the Jobs wait for exactly the registered APIServices, and may change
// these. With the component certificates-certgen-gitops, the Job certgen-init does not wait.
func certgenProblems(r rendered) []string {
	var problems []string
	var names []string
	for _, a := range registered(r, r.objects) {
		names = append(names, a.Name)
	}
	all := workloads(r, r.objects)
	registers := slices.ContainsFunc(all, func(w workload) bool { return strings.HasSuffix(w.GetName(), "-certgen-register") })
	for _, w := range all {
		if registers && strings.HasSuffix(w.GetName(), "-certgen-init") {
			continue
		}
		if c := w.pod.Spec.Containers[0]; c.Name == "certgen" &&
			!slices.Contains(c.Args, "--apiservice="+strings.Join(names, ",")) {
			problems = append(problems, fmt.Sprintf("%s: arguments %q, want the APIServices %v", w.GetName(),
				c.Args, names))
		}
	}
	for _, role := range only[rbacv1.ClusterRole](r, r.objects, "ClusterRole") {
		for _, rule := range role.Rules {
			if slices.Contains(rule.Verbs, "patch") && !slices.Equal(rule.ResourceNames, names) {
				problems = append(problems, fmt.Sprintf("%s: patch of %v, want the APIServices %v", role.Name,
					rule.ResourceNames, names))
			}
		}
	}
	return problems
}
