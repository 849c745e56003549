// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestEngineApplyStatus: the main resource gives nobody the status, /status nothing else; what a manager applies there is
// told apart from what it applies to the main resource.
func TestEngineApplyStatus(t *testing.T) {
	w := engineWire(t, adminConfig(t, shared), newNamespace(t, shared))
	// An owner that exists, or the garbage collector would delete what it owns.
	owner := string(w.must(t, http.StatusCreated, http.MethodPost, "", jsonType, wireObject(`{"name":"owner"}`, "")).GetUID())
	condition := func(kind string) string {
		return `{"type":"` + kind + `","status":"True","reason":"Seen","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}`
	}
	// everything is an engine w with all that can be in one; each value is or contains the given one.
	everything := func(value string, replicas int) string {
		return fmt.Sprintf(`{"apiVersion":"<gv>","kind":"<kind>","metadata":{"name":"w","labels":{"l":%[1]q},"annotations":{"l":%[1]q},"finalizers":["example.com/%[1]s"],`+
			`"ownerReferences":[{"apiVersion":"<gv>","kind":"<kind>","name":"owner","uid":%[3]q,"controller":%[4]t}]},`+
			`"spec":{"model":"m","replicas":%[2]d},"status":{"replicas":%[2]d,"conditions":[%[5]s]}}`, value, replicas, owner, value == "theirs", condition("Ready"))
	}
	statusOnly := func(status string) string {
		return `{"apiVersion":"<gv>","kind":"<kind>","metadata":{"name":"w"},"status":` + status + `}`
	}
	report := func(manager, body string) *unstructured.Unstructured {
		t.Helper()
		return w.must(t, http.StatusOK, http.MethodPatch, "/w/status?fieldManager="+manager, applyPatch, body)
	}

	created := w.must(t, http.StatusCreated, http.MethodPatch, "/w?fieldManager=a", applyPatch, everything("mine", 2))
	t.Cleanup(func() {
		w.must(t, http.StatusOK, http.MethodPatch, "/w", mergePatch, `{"metadata":{"finalizers":null}}`)
	})
	main := `metadata.annotations.l metadata.finalizers[="example.com/mine"] metadata.labels.l metadata.ownerReferences[uid="` + owner + `"] spec.model spec.replicas`
	checkOwners(t, created, map[string]string{"a Apply": main})
	if diff := cmp.Diff(map[string]any{"replicas": int64(0), "readyReplicas": int64(0)}, created.Object["status"]); diff != "" {
		t.Errorf("status after apply to the main resource (-want +got):\n%s", diff)
	}

	// Who applies other values for all of it to /status gets no conflict, changes the status alone and owns it alone.
	reported := report("b", everything("theirs", 3))
	const ready = `status.conditions[type="Ready"] status.conditions[type="Ready"].lastTransitionTime status.conditions[type="Ready"].message ` +
		`status.conditions[type="Ready"].reason status.conditions[type="Ready"].status status.conditions[type="Ready"].type`
	checkOwners(t, reported, map[string]string{"a Apply": main, "b Apply/status": ready + " status.replicas"})
	if diff := cmp.Diff(created.Object["spec"], reported.Object["spec"]); diff != "" {
		t.Errorf("spec after apply to /status (-before +after):\n%s", diff)
	}
	if data, err := reported.MarshalJSON(); err != nil || strings.Contains(string(data), "theirs") || strings.Contains(string(data), `"controller":true`) {
		t.Errorf("after apply to /status: got %s (%v), want nothing of the metadata that was applied", data, err)
	}
	if replicas, _, _ := unstructured.NestedInt64(reported.Object, "status", "replicas"); replicas != 3 {
		t.Errorf("status.replicas after apply to /status: got %d, want 3", replicas)
	}

	// Conditions belong to who applied them.
	report("c", statusOnly(`{"conditions":[`+condition("Painted")+`]}`))
	left := report("b", statusOnly(`{"replicas":3}`))
	checkOwners(t, left, map[string]string{
		"a Apply": main, "b Apply/status": "status.replicas", "c Apply/status": strings.ReplaceAll(ready, "Ready", "Painted"),
	})

	// An update of the status gives the updater what it changed of it.
	updated := w.must(t, http.StatusOK, http.MethodPut, "/w/status?fieldManager=d", jsonType,
		`{"apiVersion":"<gv>","kind":"<kind>","metadata":{"name":"w","labels":{"l":"theirs"}},"spec":{"model":"m"},"status":{"replicas":4,"readyReplicas":4}}`)
	if got := owners(t, updated)["d Update/status"]; got != "status.readyReplicas status.replicas" {
		t.Errorf("fields of who updated the status: got %q, want status.readyReplicas and status.replicas", got)
	}
}
