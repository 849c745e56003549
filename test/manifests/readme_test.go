// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit/policy"
)

// TestReadme checks that the README's example of a project renders.
func TestReadme(t *testing.T) {
	t.Parallel()
	text := readFile(t, filepath.Join(folder, "README.md"))
	// Each block is a file, with its path in the first line; kit is a copy of the manifests.
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "kit"), os.DirFS(folder)); err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(text, "```yaml\n# ")[1:]
	for _, block := range blocks {
		path, content, _ := strings.Cut(block, "\n")
		content, _, _ = strings.Cut(content, "```")
		writeFile(t, filepath.Join(dir, path), content)
	}
	writeFile(t, filepath.Join(dir, "api", "apiservices.yaml"),
		readFile(t, filepath.Join(sampleFolder, "api", "apiservices.yaml")))
	text = kustomize(t, filepath.Join(dir, "cluster-1"))
	for _, want := range []string{
		"name: widgets-apiserver\n  namespace: widgets-system\n", "https://10.0.0.11:2379", "10.100.0.0/16",
		"registry.example.com/widgets-apiserver:v1.2.3", "kind: ServiceMonitor",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the example of the README renders no %s:\n%s", want, text)
		}
	}
	if strings.Contains(text, "workshop-system") {
		t.Errorf("the example of the README renders the namespace of the sample:\n%s", text)
	}
	r := rendered{t, variant{}, parse(t, text)}
	for _, problem := range slices.Concat(nameProblems(r), namespaceProblems(r), certgenProblems(r),
		dashboardProblems(r)) {
		t.Errorf("the example of the README: %s", problem)
	}
	text = kustomize(t, filepath.Join(dir, "cluster-2"))
	if _, d := dashboards(t, parse(t, text)); d == nil || strings.Contains(text, "monitoring.coreos.com") {
		t.Errorf("the example of the README without the Prometheus operator renders no dashboard, or kinds of the "+
			"operator:\n%s", text)
	}
}

// TestAuditPolicy checks that the audit policy is valid, and that it logs secrets without their
// content.
func TestAuditPolicy(t *testing.T) {
	t.Parallel()
	text, _ := auditPolicy(t, parse(t, render(t, variant{overlay: "production"})))
	loaded, err := policy.LoadPolicyFromBytes([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range auditCases {
		if got := policy.NewPolicyRuleEvaluator(loaded).EvaluatePolicyRule(tc.request).Level; got != tc.want {
			t.Errorf("%s: level %s, want %s", tc.name, got, tc.want)
		}
	}
	if !loaded.OmitManagedFields || !slices.Contains(loaded.OmitStages, auditinternal.StageRequestReceived) {
		t.Errorf("policy %+v, want it to omit managed fields and the stage RequestReceived", loaded)
	}
}

// auditPolicy returns the audit policy of the server.
func auditPolicy(t testing.TB, objects []*unstructured.Unstructured) (text string, found bool) {
	t.Helper()
	for _, cm := range only[corev1.ConfigMap](t, objects, "ConfigMap") {
		if strings.Contains(cm.Name, "audit-policy") {
			text, found = cm.Data["policy.yaml"]
		}
	}
	return text, found
}
