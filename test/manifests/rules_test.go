// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// rendered is the input of the rules.
type rendered struct {
	*testing.T
	variant variant
	objects []*unstructured.Unstructured
}

// rules return the problems that they find.
var rules = map[string]func(r rendered) []string{
	"APIServices":    apiServiceProblems, // S44
	"names":          nameProblems,
	"namespaces":     namespaceProblems,
	"permissions":    permissionProblems, // S46
	"pods":           podProblems,        // S47
	"containers":     containerProblems,
	"server":         serverProblems,
	"volumes":        volumeProblems, // S48
	"secrets":        secretProblems,
	"selectors":      selectorProblems,
	"exposed":        exposedProblems,
	"replicas":       replicaProblems,
	"runbooks":       runbookProblems,
	"webhooks":       webhookProblems,
	"certgen's pods": certgenProblems,
	"dashboard":      dashboardProblems,
}

// TestRules checks everything that can be applied against the rules.
func TestRules(t *testing.T) {
	t.Parallel()
	for _, v := range variants(t) {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			r := rendered{t, v, parse(t, render(t, v))}
			for name, rule := range rules {
				for _, problem := range rule(r) {
					t.Errorf("%s: %s", name, problem)
				}
			}
		})
	}
}

// namespaceProblems checks that each object has a namespace if its kind is namespaced, that only
// one is in kube-system, and that the namespace is restricted except with hostNetwork.
func namespaceProblems(r rendered) []string {
	var problems []string
	clusterScoped := map[string]bool{
		"Namespace": true, "ClusterRole": true, "ClusterRoleBinding": true, "PriorityClass": true, "APIService": true,
		"FlowSchema":                 true,
		"PriorityLevelConfiguration": true, "ValidatingAdmissionPolicy": true, "ValidatingAdmissionPolicyBinding": true,
	}
	elsewhere := 0
	for _, obj := range r.objects {
		switch namespace := obj.GetNamespace(); {
		case clusterScoped[obj.GetKind()] != (namespace == ""):
			problems = append(problems, fmt.Sprintf("%s %s is in namespace %q", obj.GetKind(),
				obj.GetName(), namespace))
		case obj.GetKind() == "RoleBinding" && namespace == "kube-system":
			elsewhere++
		case namespace != "" && namespace != service(r, r.objects).Namespace:
			problems = append(problems, fmt.Sprintf("%s %s is in namespace %s", obj.GetKind(),
				obj.GetName(), namespace))
		}
		if obj.GetKind() == "Namespace" {
			want := "restricted"
			if server(r, r.objects).pod.Spec.HostNetwork {
				want = "privileged"
			}
			labels := obj.GetLabels()
			const prefix = "pod-security.kubernetes.io/"
			if labels[prefix+"enforce"] != want || labels[prefix+"warn"] != "restricted" ||
				labels[prefix+"audit"] != "restricted" {
				problems = append(problems,
					fmt.Sprintf("labels of the namespace are %v, want %s enforced and restricted audited and warned of",
						labels, want))
			}
		}
	}
	if elsewhere != 1 {
		problems = append(problems, fmt.Sprintf("%d RoleBindings in kube-system, want 1", elsewhere))
	}
	return problems
}
