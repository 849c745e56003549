// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// rendered is what the rules look at.
type rendered struct {
	*testing.T
	variant variant
	objects []*unstructured.Unstructured
}

// rules return what is wrong.
var rules = map[string]func(r rendered) []string{
	"APIServices":    apiServiceProblems, // S44
	"names":          nameProblems,
	"namespaces":     namespaceProblems,
	"rights":         rightsProblems, // S46
	"pods":           podProblems,    // S47
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

// TestRules holds everything that can be applied against the rules.
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

// TestRulesFail: each rule finds what it is for. Words that make verify looks for are in two parts.
func TestRulesFail(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		rule     string
		variant  variant
		from, to string
		want     string
	}{
		{"APIServices", variant{overlay: "kind"}, "groupPriorityMinimum: 1000", "groupPriorityMinimum: 1000\n  insecureSkipTLSVerify: " + "true", "insecureSkipTLSVerify"},
		{"APIServices", variant{overlay: "kind"}, "groupPriorityMinimum: 1000", "groupPriorityMinimum: 1000\n  caBundle: eA==", "caBundle"},
		{"APIServices", variant{overlay: "kind"}, "    port: 443\n  version: v1\n", "    port: 444\n  version: v1\n", "port 444"},
		{"names", variant{overlay: "kind"}, "name: extension-apiserver-one-replica", "name: apiserver-one-replica", "apiserver-one-replica"},
		{"names", variant{overlay: "production"}, "secretName: extension-apiserver-etcd", "secretName: apiserver-etcd", "apiserver-etcd"},
		{"names", variant{overlay: "production"}, "group: 'workshop.example.com'", "group: 'GROUP'", "GROUP"},
		{"names", variant{overlay: "kind"}, "value: extension-apiserver\n", "value: apiserver\n", "value apiserver"},
		{"names", variant{overlay: "kind"}, "metadata.name: workshop-system", "metadata.name: system", "value system"},
		{"names", variant{overlay: "kind"}, "part-of: extension-apiserver", "part-of: other", "part-of"},
		{"namespaces", variant{overlay: "kind"}, "enforce: restricted", "enforce: baseline", "restricted"},
		{"namespaces", variant{overlay: "kind"}, "namespace: kube-system", "namespace: workshop-system", "kube-system"},
		{"namespaces", variant{components: []string{"profile-host-network"}}, "hostNetwork: true", "hostNetwork: false", "restricted"},
		{"rights", variant{overlay: "kind"}, "  - list\n", "  - '*'\n", "*"},
		{"rights", variant{overlay: "kind"}, "  - resourcequotas\n", "  - secrets\n", "secrets"},
		{"rights", variant{overlay: "kind"}, "name: system:auth-delegator", "name: cluster-admin", "cluster-admin"},
		{"rights", variant{overlay: "kind"}, "  resourceNames:\n  - v1.workshop.example.com\n  - v1beta1.workshop.example.com\n  - v1alpha1.workshop.example.com\n", "", "apiservices"},
		{"rights", variant{overlay: "kind"}, "  - flowschemas\n", "  - flowschemas\n  - leases\n", "of the base"},
		{"pods", variant{overlay: "kind"}, "automountServiceAccountToken: false\n      containers:\n      - args:\n        - renew", "containers:\n      - args:\n        - renew", "token"},
		{"pods", variant{overlay: "kind"}, "runAsNonRoot: true", "runAsNonRoot: false", "runAsNonRoot"},
		{"pods", variant{overlay: "kind"}, "type: RuntimeDefault", "type: Unconfined", "seccomp"},
		{"pods", variant{overlay: "production"}, "serviceAccountName: extension-apiserver\n", "serviceAccountName: extension-apiserver\n      hostPID: true\n", "host"},
		{"pods", variant{overlay: "production"}, "name: extension-apiserver\nvalue: 1000000000", "name: other\nvalue: 1000000000", "priorityClass"},
		{"containers", variant{overlay: "kind"}, "image: certgen:v0.0.0", "image: certgen:" + "latest", "pinned"},
		{"containers", variant{overlay: "kind"}, "image: certgen:v0.0.0", "image: certgen", "pinned"},
		{"containers", variant{overlay: "kind"}, "readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false", "readOnlyRootFilesystem"},
		{"containers", variant{overlay: "kind"}, "- ALL", "- NET_RAW", "drop"},
		{"containers", variant{overlay: "kind"}, "memory: 512Mi", "cpu: 1", "memory"},
		{"server", variant{overlay: "production"}, "terminationGracePeriodSeconds: 90", "terminationGracePeriodSeconds: 60", "terminationGracePeriodSeconds"},
		{"server", variant{overlay: "production"}, "--shutdown-delay-duration=15s", "--shutdown-delay-duration=5s", "shutdown-delay"},
		{"server", variant{overlay: "production"}, "path: /readyz?exclude=etcd-alarms", "path: /healthz", "readiness"},
		{"server", variant{overlay: "production"}, "value: 384MiB", "value: 512MiB", "GOMEMLIMIT"},
		{"volumes", variant{overlay: "production"}, "mountPath: /certs", "mountPath: /certs\n          subPath: tls", "subPath"},
		{"volumes", variant{overlay: "production"}, "defaultMode: 288\n          secretName", "defaultMode: 420\n          secretName", "mode"},
		{"volumes", variant{overlay: "production"}, "secretName: extension-apiserver-serving", "secretName: extension-apiserver-serving-ca", "serving-ca"},
		{"volumes", variant{overlay: "kind"}, "expirationSeconds: 3600", "expirationSeconds: 3607", "expirationSeconds"},
		{"secrets", variant{overlay: "kind"}, "type: Opaque", "type: Opaque\nstringData: {password: x}", "data"},
		{"secrets", variant{overlay: "production"}, "name: GOMEMLIMIT\n          value: 384MiB", "name: GOMEMLIMIT\n          valueFrom: {secretKeyRef: {name: s, key: k}}", "environment"},
		{"secrets", variant{overlay: "production"}, "servers: https://", "servers: http://", "https"},
		{"selectors", variant{overlay: "kind"}, "targetPort: https", "targetPort: http", "port"},
		{"selectors", variant{overlay: "kind"}, "maxUnavailable: 1\n  selector:\n    matchLabels:\n      app.kubernetes.io/component: server", "maxUnavailable: 1\n  selector:\n    matchLabels:\n      app.kubernetes.io/component: x", "PodDisruptionBudget"},
		{"exposed", variant{overlay: "kind"}, "    targetPort: https", "    targetPort: https\n  type: NodePort", "NodePort"},
		{"replicas", variant{overlay: "production"}, "maxUnavailable: 0", "maxUnavailable: 1", "maxUnavailable"},
		{"replicas", variant{overlay: "production"}, "replicas: 2", "replicas: 1", "replicas"},
		{"replicas", variant{overlay: "kind"}, "replicas: 1", "replicas: 2", "StatefulSet"},
		{"runbooks", variant{components: []string{"monitoring"}}, "#401-403", "#402", "402"},
		{"webhooks", variant{components: []string{"embedded-storage"}}, "- Deny", "- Warn", "Deny"},
		{"certgen's pods", variant{overlay: "kind"}, "--apiservice=v1.workshop.example.com,", "--apiservice=", "APIServices"},
	} {
		t.Run(tc.rule+": "+tc.want, func(t *testing.T) {
			t.Parallel()
			text := render(t, tc.variant)
			broken := strings.ReplaceAll(text, tc.from, tc.to)
			if broken == text {
				t.Fatalf("%q is not in:\n%s", tc.from, text)
			}
			problems := rules[tc.rule](rendered{t, tc.variant, parse(t, broken)})
			if !strings.Contains(strings.Join(problems, "\n"), tc.want) {
				t.Errorf("with %q instead of %q: got %q, want a problem with %q", tc.to, tc.from, problems, tc.want)
			}
		})
	}
}

// namespaceProblems: each object says where it is, one only is in kube-system, and the namespace is restricted but in the
// exception.
func namespaceProblems(r rendered) []string {
	var problems []string
	clusterScoped := map[string]bool{
		"Namespace": true, "ClusterRole": true, "ClusterRoleBinding": true, "PriorityClass": true, "APIService": true, "FlowSchema": true,
		"PriorityLevelConfiguration": true, "ValidatingAdmissionPolicy": true, "ValidatingAdmissionPolicyBinding": true,
	}
	elsewhere := 0
	for _, obj := range r.objects {
		switch namespace := obj.GetNamespace(); {
		case clusterScoped[obj.GetKind()] != (namespace == ""):
			problems = append(problems, fmt.Sprintf("%s %s is in namespace %q", obj.GetKind(), obj.GetName(), namespace))
		case obj.GetKind() == "RoleBinding" && namespace == "kube-system":
			elsewhere++
		case namespace != "" && namespace != service(r, r.objects).Namespace:
			problems = append(problems, fmt.Sprintf("%s %s is in namespace %s", obj.GetKind(), obj.GetName(), namespace))
		}
		if obj.GetKind() == "Namespace" {
			want := "restricted"
			if server(r, r.objects).pod.Spec.HostNetwork {
				want = "privileged"
			}
			labels := obj.GetLabels()
			const prefix = "pod-security.kubernetes.io/"
			if labels[prefix+"enforce"] != want || labels[prefix+"warn"] != "restricted" || labels[prefix+"audit"] != "restricted" {
				problems = append(problems, fmt.Sprintf("labels of the namespace are %v, want %s enforced and restricted audited and warned of", labels, want))
			}
		}
	}
	if elsewhere != 1 {
		problems = append(problems, fmt.Sprintf("%d RoleBindings in kube-system, want 1", elsewhere))
	}
	return problems
}
