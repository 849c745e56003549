// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

// selectorProblems checks that everything that selects the server's pods by labels, or a port by
// its name, selects exactly these.
func selectorProblems(r rendered) []string {
	var problems []string
	selectsServer := func(what string, selector labels.Selector) {
		for _, w := range workloads(r, r.objects) {
			if got, want := selector.Matches(labels.Set(w.pod.Labels)),
				w.GetName() == service(r, r.objects).Name; got != want {
				problems = append(problems, fmt.Sprintf("%s selects the pods of %s: %t, want %t", what,
					w.GetName(), got, want))
			}
		}
	}
	w := server(r, r.objects)
	ofWorkload, _, err := unstructured.NestedMap(w.Object, "spec", "selector")
	if err != nil {
		r.Fatal(err)
	}
	selectsServer(w.GetKind(), selectorOf(r, as[metav1.LabelSelector](r,
		&unstructured.Unstructured{Object: ofWorkload})))
	for _, s := range only[corev1.Service](r, r.objects, "Service") {
		selectsServer("Service", labels.SelectorFromSet(s.Spec.Selector))
		for _, p := range s.Spec.Ports {
			if !slices.ContainsFunc(w.pod.Spec.Containers[0].Ports,
				func(c corev1.ContainerPort) bool { return c.Name == p.TargetPort.StrVal }) {
				problems = append(problems, fmt.Sprintf("no port of the pod is named %s", &p.TargetPort))
			}
		}
	}
	budgets := only[policyv1.PodDisruptionBudget](r, r.objects, "PodDisruptionBudget")
	if len(budgets) != 1 {
		problems = append(problems, fmt.Sprintf("%d PodDisruptionBudgets, want 1", len(budgets)))
	}
	for _, b := range budgets {
		selectsServer("PodDisruptionBudget", selectorOf(r, b.Spec.Selector))
	}
	for _, c := range w.pod.Spec.TopologySpreadConstraints {
		selectsServer("spread by "+c.TopologyKey, selectorOf(r, c.LabelSelector))
	}
	return problems
}

func selectorOf(t testing.TB, s *metav1.LabelSelector) labels.Selector {
	t.Helper()
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		t.Fatal(err)
	}
	return selector
}

// replicaProblems checks that a StatefulSet has one replica. A highly available Deployment must
// have two on two nodes, and no fewer during a rollout.
func replicaProblems(r rendered) []string {
	var problems []string
	for _, s := range only[appsv1.StatefulSet](r, r.objects, "StatefulSet") {
		if s.Spec.Replicas == nil || *s.Spec.Replicas != 1 || len(s.Spec.VolumeClaimTemplates) != 1 {
			problems = append(problems, fmt.Sprintf("StatefulSet has %v replicas and %d volumes, want 1 and 1",
				s.Spec.Replicas, len(s.Spec.VolumeClaimTemplates)))
		}
	}
	if r.variant.overlay != "production" && !slices.Contains(r.variant.components, "high-availability") {
		return problems
	}
	for _, d := range only[appsv1.Deployment](r, r.objects, "Deployment") {
		if *d.Spec.Replicas != 2 {
			problems = append(problems, fmt.Sprintf("replicas are %d, want 2", *d.Spec.Replicas))
		}
		if rolling := d.Spec.Strategy.RollingUpdate; rolling == nil || rolling.MaxUnavailable.String() != "0" ||
			rolling.MaxSurge.String() != "1" {
			problems = append(problems, fmt.Sprintf("rollout has %v, want maxUnavailable 0 and maxSurge 1", rolling))
		}
		spread := d.Spec.Template.Spec.TopologySpreadConstraints
		if len(spread) == 0 || spread[0].TopologyKey != corev1.LabelHostname ||
			spread[0].WhenUnsatisfiable != corev1.DoNotSchedule {
			problems = append(problems, fmt.Sprintf("spread is %v, want it over nodes", spread))
		}
	}
	return problems
}

// serverPermissions returns all permissions that are bound to the server's ServiceAccount: the
// rules of ClusterRoles in the manifests, and the names of other roles.
func serverPermissions(t testing.TB, objects []*unstructured.Unstructured) []string {
	t.Helper()
	roles := map[string][]rbacv1.PolicyRule{}
	for _, role := range only[rbacv1.ClusterRole](t, objects, "ClusterRole") {
		roles[role.Name] = role.Rules
	}
	var out []string
	own := service(t, objects)
	for _, obj := range objects {
		if !strings.HasSuffix(obj.GetKind(), "RoleBinding") {
			continue
		}
		binding := as[rbacv1.RoleBinding](t, obj)
		if !slices.ContainsFunc(binding.Subjects, func(s rbacv1.Subject) bool {
			return s.Name == own.Name &&
				s.Namespace == own.Namespace
		}) {
			continue
		}
		out = append(out, fmt.Sprintf("%s in %q", binding.RoleRef.Name, binding.Namespace))
		for _, rule := range roles[binding.RoleRef.Name] {
			out = append(out, rule.String())
		}
	}
	slices.Sort(out)
	return out
}

// alert is a rule of the Prometheus operator.
type alert struct {
	Alert, Expr, For    string
	Labels, Annotations map[string]string
}

func alerts(t testing.TB, objects []*unstructured.Unstructured) []alert {
	t.Helper()
	var out []alert
	for _, obj := range objects {
		if obj.GetKind() != "PrometheusRule" {
			continue
		}
		var rule struct {
			Spec struct{ Groups []struct{ Rules []alert } }
		}
		data, err := yaml.Marshal(obj.Object)
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal(data, &rule); err != nil {
			t.Fatal(err)
		}
		for _, g := range rule.Spec.Groups {
			out = append(out, g.Rules...)
		}
	}
	return out
}

func nestedString(obj *unstructured.Unstructured, path ...string) (string, bool, error) {
	return unstructured.NestedString(obj.Object, path...)
}

func readFile(t testing.TB, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestKustomizations checks that every file of manifests is used, that each kustomization has only
// the fields for its purpose, and no field that kustomize has deprecated.
func TestKustomizations(t *testing.T) {
	t.Parallel()
	common := []string{"apiVersion", "kind", "resources"}
	fields := map[string][]string{filepath.Join(folder, "names"): append(common, "patches", "replacements")}
	for _, name := range []string{"base", "kube-system"} {
		fields[filepath.Join(folder, name)] = common
	}
	for _, name := range folders(t, filepath.Join(folder, "components")) {
		fields[filepath.Join(folder, "components", name)] = append(common, "components", "patches", "replacements",
			"configMapGenerator")
	}
	fields[filepath.Join(sampleFolder, "api")] = append(common, "images")
	fields[filepath.Join(sampleFolder, "names")] = []string{"apiVersion", "kind", "namespace", "namePrefix"}
	for _, name := range overlays(t, sampleFolder) {
		fields[filepath.Join(sampleFolder, name)] = append(common, "components")
	}
	for dir, allowed := range fields {
		text := readFile(t, filepath.Join(dir, "kustomization.yaml"))
		var have map[string]any
		if err := yaml.Unmarshal([]byte(text), &have); err != nil {
			t.Fatal(err)
		}
		for field := range have {
			if !slices.Contains(allowed, field) {
				t.Errorf("%s has the field %s, expected %v", dir, field, allowed)
			}
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range entries {
			if name := entry.Name(); name != "kustomization.yaml" && !strings.Contains(text, name) {
				t.Errorf("%s does not name %s", dir, name)
			}
		}
	}
}
