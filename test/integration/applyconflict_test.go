// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// conflict is the Status of a refused apply, with the causes in the order of the fields.
func conflict(t *testing.T, r reply) metav1.Status {
	t.Helper()
	var status metav1.Status
	if r.code != http.StatusConflict {
		t.Fatalf("got %s, want a conflict", r)
	}
	if err := json.Unmarshal(r.body, &status); err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(status.Details.Causes, func(a, b metav1.StatusCause) int { return strings.Compare(a.Field, b.Field) })
	return status
}

// TestEngineApplyConflict: who applies another value to a field of another manager is told each field and its owner, and
// nothing is written; with force the field changes hands.
func TestEngineApplyConflict(t *testing.T) {
	config := rest.CopyConfig(adminConfig(t, shared))
	config.UserAgent = "editor/1.0"
	wires := map[string]wire{"engines": engineWire(t, config, newNamespace(t, shared))}
	w := wires["engines"]
	gv := engineCase.resource.GroupVersion().String()
	w.must(t, http.StatusCreated, http.MethodPatch, "/w?fieldManager=a", applyPatch, applied(`{"model":"m","grade":"Premium","parts":[{"name":"frame","material":"oak"}]}`))
	w.must(t, http.StatusOK, http.MethodPatch, "/w", mergePatch, `{"spec":{"replicas":2}}`)
	w.must(t, http.StatusOK, http.MethodPatch, "/w/status?fieldManager=reporter", mergePatch, `{"status":{"replicas":2}}`)
	check := unchanged(t, wires)

	got := conflict(t, w.apply(t, "b", applied(`{"grade":"Economy"}`)))
	want := metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: http.StatusConflict, Reason: metav1.StatusReasonConflict,
		Message: `Apply failed with 1 conflict: conflict with "a": .spec.grade`,
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: metav1.CauseTypeFieldManagerConflict, Message: `conflict with "a"`, Field: ".spec.grade"}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("one conflict (-want +got):\n%s", diff)
	}

	other := `{"model":"m","grade":"Economy","replicas":3,"parts":[{"name":"frame","material":"ash"}]}`
	causes := func(manager string, fields ...string) []metav1.StatusCause {
		var all []metav1.StatusCause
		for _, field := range fields {
			all = append(all, metav1.StatusCause{Type: metav1.CauseTypeFieldManagerConflict, Message: "conflict with " + manager, Field: field})
		}
		return all
	}
	byManager := append(causes(`"a"`, ".spec.grade", `.spec.parts[name="frame"].material`), causes(`"editor" using `+gv, ".spec.replicas")...)
	if diff := cmp.Diff(byManager, conflict(t, w.apply(t, "b", applied(other))).Details.Causes); diff != "" {
		t.Errorf("conflicts with several (-want +got):\n%s", diff)
	}
	status := `{"apiVersion":"<gv>","kind":"<kind>","metadata":{"name":"w"},"status":{"replicas":3}}`
	ofStatus := causes(`"reporter" with subresource "status" using `+gv, ".status.replicas")
	r := w.send(t, http.MethodPatch, "/w/status?fieldManager=b", applyPatch, status)
	if diff := cmp.Diff(ofStatus, conflict(t, r).Details.Causes); diff != "" {
		t.Errorf("conflict in the status (-want +got):\n%s", diff)
	}
	check()

	// The same value is no conflict: the model is shared from here on.
	forced := w.mustApply(t, "b&force=true", applied(other))
	if spec, want := specOf(t, forced), "m Economy 3/none, 1 ash frame"; spec != want {
		t.Errorf("forced: got %s, want %s", spec, want)
	}
	checkOwners(t, forced, map[string]string{
		"a Apply":                "spec.model spec.parts[name=\"frame\"] spec.parts[name=\"frame\"].name",
		"b Apply":                "spec.grade spec.model " + framePart + " spec.replicas",
		"reporter Update/status": "status.replicas",
	})
	// Updates are not asked: they take what they change.
	updated := w.must(t, http.StatusOK, http.MethodPatch, "/w?fieldManager=c", mergePatch, `{"spec":{"grade":"Premium"}}`)
	if got := owners(t, updated); got["c Update"] != "spec.grade" || got["b Apply"] != "spec.model "+framePart+" spec.replicas" {
		t.Errorf("owners after an update by c: got %v, want that c has spec.grade and b has not", got)
	}
}
