// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit/policy"

	"example.com/extension-apiserver/internal/registration"
	"example.com/extension-apiserver/sample"
	"example.com/extension-apiserver/sample/apis/workshop"
)

// left matches a placeholder of the kit's files for a project's name, namespace or API.
var left = regexp.MustCompile(`(^|["'=/( ])apiserver([-./:"' ]|$)|^system$|\bGROUP\b|\bNAMES\b`)

// nameProblems checks that every object that exists once per cluster has the project's name, so
// that two projects do not conflict, and that every object has its label. No placeholder may be
// left.
func nameProblems(r rendered) []string {
	var problems []string
	name := service(r, r.objects).Name
	for _, obj := range r.objects {
		if kind := obj.GetKind(); kind != "Namespace" && kind != "APIService" &&
			!strings.HasPrefix(obj.GetName(), name) {
			problems = append(problems, fmt.Sprintf("%s %s has not the name of %s", kind, obj.GetName(), name))
		}
		if partOf := obj.GetLabels()["app.kubernetes.io/part-of"]; partOf != name {
			problems = append(problems, fmt.Sprintf("%s %s is part-of %q, want %q", obj.GetKind(), obj.GetName(),
				partOf, name))
		}
		walkStrings(obj.Object, func(value string) {
			if found := left.FindString(value); found != "" {
				problems = append(problems, fmt.Sprintf("%s %s has %q in the value %.100s", obj.GetKind(),
					obj.GetName(), found, value))
			}
		})
	}
	return problems
}

func walkStrings(value any, f func(string)) {
	switch value := value.(type) {
	case string:
		f(value)
	case []any:
		for _, v := range value {
			walkStrings(v, f)
		}
	case map[string]any:
		for _, v := range value {
			walkStrings(v, f)
		}
	}
}

// TestNames checks that a project is named by its own two files, and that the files of the kit
// refer to no API.
func TestNames(t *testing.T) {
	t.Parallel()
	for _, overlay := range overlays(t, sampleFolder) {
		text := render(t, variant{overlay: overlay})
		for _, want := range []string{"name: extension-apiserver\n  namespace: workshop-system\n",
			"name: v1alpha1.workshop.example.com\n"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s renders no %q", overlay, want)
			}
		}
	}
	// The files of the kit must not refer to any API.
	err := fs.WalkDir(os.DirFS(folder), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".yaml") {
			return err
		}
		data, err := fs.ReadFile(os.DirFS(folder), path)
		if found := regexp.MustCompile(`(?i)workshop|widget|gadget`).Find(data); found != nil {
			t.Errorf("manifests/%s has %q", path, found)
		}
		if namespace := []byte("\n  namespace: "); bytes.Contains(data, namespace) &&
			path != "kube-system/rolebinding.yaml" && path != "components/monitoring/rbac.yaml" {
			t.Errorf("manifests/%s names a namespace", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestProjectsInOneNamespace checks that no selector of a project matches the Services or pods of
// another in the same namespace.
func TestProjectsInOneNamespace(t *testing.T) {
	t.Parallel()
	all := []string{"external-etcd", "high-availability", "network-policy", "certificates-certgen", "monitoring"}
	names := "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\nnamespace: shared\nnamePrefix: %s-\n"
	for _, components := range [][]string{all, {"embedded-storage"}} {
		one := parse(t, render(t, variant{components: components, names: fmt.Sprintf(names, "one")}))
		other := parse(t, render(t, variant{components: components, names: fmt.Sprintf(names, "other")}))
		targets := []map[string]string{service(t, other).Labels}
		for _, w := range workloads(t, other) {
			targets = append(targets, w.pod.Labels)
		}
		found := 0
		for _, obj := range one {
			for _, selector := range selectors(t, obj) {
				found++
				if slices.ContainsFunc(targets, func(l map[string]string) bool {
					return selector.Matches(
						labels.Set(l))
				}) {
					t.Errorf("%s %s selects with %s what belongs to another project", obj.GetKind(),
						obj.GetName(), selector)
				}
			}
		}
		if want := map[bool]int{true: 9, false: 3}[len(components) > 1]; found != want {
			t.Errorf("%v: got %d selectors, want %d", components, found, want)
		}
	}
}

// selectors returns the selectors of pods and Services in the object's own namespace, except those
// for all of them. matchLabelKeys narrows the ones of topologySpreadConstraints to the pods of a
// Deployment's revision.
func selectors(t *testing.T, obj *unstructured.Unstructured) []labels.Selector {
	t.Helper()
	var out []labels.Selector
	add := func(l *metav1.LabelSelector) {
		if l != nil && len(l.MatchLabels) > 0 {
			out = append(out, selectorOf(t, l))
		}
	}
	switch obj.GetKind() {
	case "Service":
		add(&metav1.LabelSelector{MatchLabels: as[corev1.Service](t, obj).Spec.Selector})
	case "Deployment":
		add(as[appsv1.Deployment](t, obj).Spec.Selector)
	case "StatefulSet":
		add(as[appsv1.StatefulSet](t, obj).Spec.Selector)
	case "PodDisruptionBudget":
		add(as[policyv1.PodDisruptionBudget](t, obj).Spec.Selector)
	case "ServiceMonitor":
		match, _, err := unstructured.NestedStringMap(obj.Object, "spec", "selector", "matchLabels")
		if err != nil {
			t.Fatal(err)
		}
		add(&metav1.LabelSelector{MatchLabels: match})
	case "NetworkPolicy":
		spec := as[networkingv1.NetworkPolicy](t, obj).Spec
		add(&spec.PodSelector)
		var peers []networkingv1.NetworkPolicyPeer
		for _, rule := range spec.Ingress {
			peers = append(peers, rule.From...)
		}
		for _, rule := range spec.Egress {
			peers = append(peers, rule.To...)
		}
		for _, peer := range peers {
			if peer.NamespaceSelector == nil {
				add(peer.PodSelector)
			}
		}
	}
	return out
}

// TestCertManager checks that an overlay with cert-manager contains nothing of certgen.
func TestCertManager(t *testing.T) {
	t.Parallel()
	for _, obj := range parse(t, render(t, variant{components: []string{"network-policy",
		"certificates-cert-manager"}})) {
		walkStrings(obj.Object, func(value string) {
			if strings.Contains(value, "certgen") {
				t.Errorf("%s %s has %q", obj.GetKind(), obj.GetName(), value)
			}
		})
	}
}

// TestAlerts checks that no alert refers to a namespace, and that the alert about kube-apiserver
// matches only the APIServices of the project.
func TestAlerts(t *testing.T) {
	t.Parallel()
	objects := parse(t, render(t, variant{components: []string{"monitoring"}}))
	names := regexp.MustCompile("^(?:" + alerted(t, objects) + ")$")
	for _, a := range registered(t, objects) {
		if !names.MatchString(a.Name) {
			t.Errorf("%s does not match %s", names, a.Name)
		}
	}
	if names.MatchString("v1.apps") || names.MatchString("v1.other.workshop.example.com") {
		t.Errorf("%s matches others", names)
	}
	for _, rule := range alerts(t, objects) {
		if regexp.MustCompile(`namespace[=!]`).MatchString(rule.Expr) {
			t.Errorf("%s names a namespace: %s", rule.Alert, rule.Expr)
		}
	}
}

// alerted returns the pattern of APIServices in the alert about kube-apiserver.
func alerted(t *testing.T, objects []*unstructured.Unstructured) string {
	t.Helper()
	for _, rule := range alerts(t, objects) {
		if match := regexp.MustCompile(`aggregator_unavailable_apiservice\{name=~"([^"]*)"`).FindStringSubmatch(
			rule.Expr); match != nil {
			return match[1]
		}
	}
	t.Fatal("no alert about APIServices")
	return ""
}

// TestTwoGroups checks that everything generated from an API covers each of its groups.
func TestTwoGroups(t *testing.T) {
	t.Parallel()
	other := schema.GroupVersion{Group: "other.example.com", Version: "v2"}
	apiServices, err := registration.Manifest(append(sample.API().GroupVersions(), other), sample.API().AllPermissions(),
		sample.API().NamespacePermissions)
	if err != nil {
		t.Fatal(err)
	}
	project := t.TempDir()
	writeFile(t, filepath.Join(project, "api", "apiservices.yaml"), string(apiServices))
	writeFile(t, filepath.Join(project, "api", "kustomization.yaml"),
		fmt.Sprintf("resources: [%s, apiservices.yaml]\n",
			relative(t, filepath.Join(project, "api"), filepath.Join(folder, "base"))))
	writeFile(t, filepath.Join(project, "names", "kustomization.yaml"),
		readFile(t, filepath.Join(sampleFolder, "names", "kustomization.yaml")))
	objects := parse(t, render(t, variant{project: project,
		components: []string{"audit", "certificates-certgen", "monitoring"}}))
	r := rendered{t, variant{}, objects}
	for _, problem := range slices.Concat(certgenProblems(r), dashboardProblems(r)) {
		t.Error(problem)
	}
	services := registered(t, objects)
	if len(services) != 4 {
		t.Errorf("got %d APIServices, want 4", len(services))
	}
	names := regexp.MustCompile("^(?:" + alerted(t, objects) + ")$")
	for _, a := range services {
		if !names.MatchString(a.Name) {
			t.Errorf("the alert %s does not match %s", names, a.Name)
		}
	}
	text, _ := auditPolicy(t, objects)
	loaded, err := policy.LoadPolicyFromBytes([]byte(text))
	if err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	for _, group := range []string{workshop.GroupName, other.Group} {
		request := auditCase("create", "identityreviews", "", "jane")
		request.APIGroup = group
		if got := policy.NewPolicyRuleEvaluator(loaded).EvaluatePolicyRule(
			request).Level; got != auditinternal.LevelMetadata {
			t.Errorf("audit level of a review in %s: got %s, want %s", group, got, auditinternal.LevelMetadata)
		}
	}
}
