// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"net/http"
	"testing"

	"example.com/extension-apiserver/pkg/envtest"
)

// TestEngineKubectlApplyServerSide: who goes from kubectl apply to kubectl apply --server-side keeps what is theirs: there
// is no conflict with themselves, and what they leave out is removed.
func TestEngineKubectlApplyServerSide(t *testing.T) {
	namespace := newNamespace(t, shared)
	w := engineWire(t, adminConfig(t, shared), namespace)
	apply := func(manifest string, flags ...string) {
		t.Helper()
		run := envtest.Kubectl{Stdin: w.fill.Replace("apiVersion: <gv>\nkind: <kind>\nmetadata:\n  name: w\n" + manifest)}
		if stdout, stderr, err := run.Run(t.Context(), shared, append([]string{"--namespace=" + namespace, "apply", "-f", "-"}, flags...)...); err != nil {
			t.Fatalf("kubectl apply %v: %v\n%s%s", flags, err, stdout, stderr)
		}
	}
	apply("  labels: {a: b, c: d}\nspec: {model: m, replicas: 2, parts: [{name: frame, material: oak}, {name: screw, quantity: 12}]}\n")
	before := w.must(t, http.StatusOK, http.MethodGet, "/w", "", "")
	if got := owners(t, before); len(got) != 1 || got["kubectl-client-side-apply Update"] == "" {
		t.Fatalf("owners after kubectl apply: got %v, want kubectl-client-side-apply alone", got)
	}
	w.must(t, http.StatusOK, http.MethodPatch, "/w?fieldManager=scaler", mergePatch, `{"spec":{"maxReplicas":9}}`)

	apply("  labels: {a: b}\nspec: {model: m, replicas: 3, parts: [{name: frame, material: oak}]}\n", "--server-side")
	after := w.must(t, http.StatusOK, http.MethodGet, "/w", "", "")
	if got, want := specOf(t, after), "m Standard 3/9, 1 oak frame"; got != want || after.GetLabels()["c"] != "" {
		t.Errorf("after kubectl apply --server-side: got %s, labels %v; want %s, no label c", got, after.GetLabels(), want)
	}
	checkOwners(t, after, map[string]string{
		"kubectl Apply":              "metadata.labels.a spec.model " + framePart + " spec.replicas",
		"kubectl-last-applied Apply": "metadata.annotations.kubectl.kubernetes.io/last-applied-configuration",
		"scaler Update":              "spec.maxReplicas",
	})
}
