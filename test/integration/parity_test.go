// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// wrong is a value that no version accepts. field is its field name in v1.
type wrong struct {
	name  string
	value any
	field string
	want  []string
	// noApply skips server-side apply, which merges the list by its keys into the existing one,
	// or cannot.
	noApply bool
}

// wrongSpecs lists values that the server rejects on create and on update.
var wrongSpecs = []wrong{
	{"grade", "Golden", "spec.grade", []string{"spec.grade: FieldValueNotSupported"}, false},
	{"negative replicas", int64(-1), "spec.replicas", []string{"spec.replicas: FieldValueInvalid"}, false},
	{"replicas above the limit", int64(6), "spec.replicas", []string{"spec.replicas: FieldValueInvalid"}, false},
	{"limit zero", int64(0), "spec.maxReplicas", []string{"spec.maxReplicas: FieldValueInvalid",
		"spec.replicas: FieldValueInvalid"}, false},
	{"part twice", []any{map[string]any{"name": "a"}, map[string]any{"name": "a"}}, "spec.parts",
		[]string{"spec.parts[1]: FieldValueDuplicate"}, true},
	{"part without name", []any{map[string]any{"name": ""}}, "spec.parts",
		[]string{"spec.parts[0].name: FieldValueRequired"}, true},
	{"part's name", []any{map[string]any{"name": "a.b"}}, "spec.parts",
		[]string{"spec.parts[0].name: FieldValueInvalid"}, true},
	{"too many parts", namedParts(65), "spec.parts", []string{"spec.parts: FieldValueTooMany"}, true},
}

// wrongStatuses lists values that the server rejects in the subresource status.
var wrongStatuses = []wrong{
	{"negative", int64(-1), "status.observedGeneration",
		[]string{"status.observedGeneration: FieldValueInvalid"}, false},
	{"more ready than there are", int64(1), "status.readyReplicas",
		[]string{"status.readyReplicas: FieldValueInvalid"}, false},
	{"selector", "a in (b", "status.selector", []string{"status.selector: FieldValueInvalid"}, false},
	{"condition", []any{map[string]any{"type": "Ready", "status": "Maybe", "reason": "R", "message": "",
		"lastTransitionTime": "2026-01-01T00:00:00Z"}},
		"status.conditions", []string{"status.conditions[0].status: FieldValueNotSupported"}, false},
}

func namedParts(n int) []any {
	var parts []any
	for i := range n {
		parts = append(parts, map[string]any{"name": fmt.Sprintf("p%d", i)})
	}
	return parts
}

// set returns a copy of the object with the value in the version's field.
func (w wrong) set(t *testing.T, obj *unstructured.Unstructured, version string) *unstructured.Unstructured {
	t.Helper()
	obj = obj.DeepCopy()
	if err := unstructured.SetNestedField(obj.Object, w.value,
		strings.Split(renamed(version, w.field), ".")...); err != nil {
		t.Fatal(err)
	}
	return obj
}

// compare compares the causes of a 422 error with the wanted ones, with the field names of the
// version.
func (w wrong) compare(t *testing.T, how string, err error, k kindCase) {
	t.Helper()
	var want, got []string
	for _, cause := range w.want {
		want = append(want, renamed(k.resource.Version, cause))
	}
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) {
		t.Errorf("%s: %v, want Invalid with %v", how, err, want)
		return
	}
	for _, cause := range status.Status().Details.Causes {
		got = append(got, fmt.Sprintf("%s: %s", cause.Field, cause.Type))
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, slices.Compact(got)); diff != "" || status.Status().Details.Kind != "Widget" {
		t.Errorf("%s: causes about %s (-want +got):\n%s\n%v", how, status.Status().Details.Kind, diff, err)
	}
}

// TestWidgetSameErrors checks that an invalid object gets the same errors through each version,
// on create, update, patch, apply and in the status. Generated validation runs on the version of
// the request, so a version without a validation rule would bypass it.
func TestWidgetSameErrors(t *testing.T) {
	namespace := shared.NewNamespace(t)
	eachWidgetVersion(t, func(t *testing.T, k kindCase) {
		version := k.resource.Version
		client := k.client(t, shared.Admin(t), namespace)
		valid, err := client.Create(t.Context(), k.object(t, "w-"+version), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range wrongSpecs {
			t.Run(w.name, func(t *testing.T) {
				_, err := client.Create(t.Context(), w.set(t, k.object(t, "wrong"), version), metav1.CreateOptions{})
				w.compare(t, "create", err, k)
				_, err = client.Update(t.Context(), w.set(t, valid, version), metav1.UpdateOptions{})
				w.compare(t, "update", err, k)
				applied := w.set(t, k.object(t, valid.GetName()), version)
				if !w.noApply {
					_, err = client.Apply(t.Context(), valid.GetName(), applied,
						metav1.ApplyOptions{FieldManager: "test", Force: true})
					w.compare(t, "apply", err, k)
				}
			})
		}
		for _, w := range wrongStatuses {
			t.Run(w.name, func(t *testing.T) {
				_, err := client.UpdateStatus(t.Context(), w.set(t, valid, version), metav1.UpdateOptions{})
				w.compare(t, "update of the status", err, k)
			})
		}
		immutable := wrong{"model", "other", "spec.model", []string{"spec.model: FieldValueInvalid"}, false}
		_, err = client.Update(t.Context(), immutable.set(t, valid, version), metav1.UpdateOptions{})
		immutable.compare(t, "update of the immutable model", err, k)
		after, err := client.Get(t.Context(), valid.GetName(), metav1.GetOptions{})
		if err != nil || after.GetResourceVersion() != valid.GetResourceVersion() {
			t.Errorf("after the rejected request: %v, resourceVersion %s, want %s as before", err,
				after.GetResourceVersion(), valid.GetResourceVersion())
		}
	})
}

// TestWidgetApplyAcrossVersions checks that field ownership carries over between versions,
// whatever the fields are called in each.
func TestWidgetApplyAcrossVersions(t *testing.T) {
	namespace, config := shared.NewNamespace(t), shared.Admin(t)
	current, old := inVersion("v1"), inVersion("v1alpha1")
	apply := func(k kindCase, manager, spec string, force bool) (*unstructured.Unstructured, error) {
		k.spec = spec
		return k.client(t, config, namespace).Apply(t.Context(), "w", k.object(t, "w"),
			metav1.ApplyOptions{FieldManager: manager, Force: force})
	}
	if _, err := apply(current, "new",
		`{"model":"pendulum","replicas":2,"maxReplicas":5,"parts":[{"name":"frame","material":"oak"}]}`,
		false); err != nil {
		t.Fatal(err)
	}
	_, err := apply(old, "old", `{"design":"pendulum","scale":{"desired":3}}`, false)
	if !apierrors.IsConflict(err) || !strings.Contains(err.Error(), `conflict with "new": .spec.replicas`) {
		t.Errorf("apply of another number in v1alpha1: %v, want a conflict with the owner, by the name that its "+
			"version has", err)
	}
	if _, err := apply(old, "old", `{"design":"pendulum","scale":{"desired":3},"parts":[{"name":"screw","count":12}]}`,
		true); err != nil {
		t.Fatal(err)
	}
	got, err := apply(current, "new",
		`{"model":"pendulum","maxReplicas":5,"parts":[{"name":"frame","material":"oak"}]}`, false)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"model": "pendulum", "grade": "Standard", "replicas": int64(3), "maxReplicas": int64(5),
		"parts": []any{
			map[string]any{"name": "frame", "quantity": int64(1), "material": "oak"},
			map[string]any{"name": "screw", "quantity": int64(12)},
		}}
	if diff := cmp.Diff(want, got.Object["spec"]); diff != "" {
		t.Errorf("spec of both (-want +got):\n%s", diff)
	}
	// The old manager no longer applies its fields: they are removed, and those of the other
	// manager stay.
	if _, err = apply(old, "old", `{"design":"pendulum"}`, false); err != nil {
		t.Fatal(err)
	}
	got, err = current.client(t, config, namespace).Get(t.Context(), "w", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want["replicas"], want["parts"] = int64(1), want["parts"].([]any)[:1]
	if diff := cmp.Diff(want, got.Object["spec"]); diff != "" || len(got.GetAnnotations()) != 0 {
		t.Errorf("spec after one let go, annotations %v, want none (-want +got):\n%s", got.GetAnnotations(), diff)
	}
}

// TestWidgetMergeAcrossVersions checks that merge keys work with the field names of the patch's
// version.
func TestWidgetMergeAcrossVersions(t *testing.T) {
	namespace, config := shared.NewNamespace(t), shared.Admin(t)
	if _, err := inVersion("v1").client(t, config, namespace).Create(t.Context(), inVersion("v1").object(t, "w"),
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for version, patch := range map[string]string{
		"v1":       `{"spec":{"parts":[{"name":"frame","quantity":2}]}}`,
		"v1alpha1": `{"spec":{"parts":[{"name":"frame","count":2}]}}`,
	} {
		reset := []byte(`{"spec":{"parts":[{"name":"frame","quantity":1}]}}`)
		if _, err := inVersion("v1").client(t, config, namespace).Patch(t.Context(), "w", types.StrategicMergePatchType,
			reset, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := inVersion(version).client(t, config, namespace).Patch(t.Context(), "w",
			types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		got, err := inVersion("v1").client(t, config, namespace).Get(t.Context(), "w", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		parts, _, err := unstructured.NestedSlice(got.Object, "spec", "parts")
		if err != nil {
			t.Fatal(err)
		}
		want := []any{map[string]any{"name": "screw", "quantity": int64(12)},
			map[string]any{"name": "frame", "quantity": int64(2), "material": "oak"}}
		slices.SortFunc(parts, func(a, b any) int {
			return -strings.Compare(a.(map[string]any)["name"].(string), b.(map[string]any)["name"].(string))
		})
		if diff := cmp.Diff(want, parts); diff != "" {
			t.Errorf("parts after a merge in %s (-want +got):\n%s", version, diff)
		}
	}
}

// TestWidgetApplyKeepsMaterials checks that the annotations in which v1alpha1 keeps data have the
// same owners as the fields in v1.
func TestWidgetApplyKeepsMaterials(t *testing.T) {
	namespace, config := shared.NewNamespace(t), shared.Admin(t)
	apply := func(version, manager, object string) error {
		k := inVersion(version)
		obj := k.object(t, "w")
		delete(obj.Object, "spec")
		if err := json.Unmarshal([]byte(object), &obj.Object); err != nil {
			t.Fatal(err)
		}
		obj.SetName("w")
		_, err := k.client(t, config, namespace).Apply(t.Context(), "w", obj,
			metav1.ApplyOptions{FieldManager: manager})
		return err
	}
	if err := apply("v1", "b", `{"spec":{"model":"m","parts":[{"name":"p","material":"oak"}]}}`); err != nil {
		t.Fatal(err)
	}
	const ownQ = `{"metadata":{"annotations":{"materials.workshop.example.com/q":"tin"}},"spec":{"design":"m","parts":[{"name":"q"}]}}`
	if err := apply("v1alpha1", "a", ownQ); err != nil {
		t.Fatal(err)
	}
	got, err := inVersion("v1").client(t, config, namespace).Get(t.Context(), "w", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	parts, _, _ := unstructured.NestedSlice(got.Object, "spec", "parts")
	want := []any{
		map[string]any{"name": "p", "quantity": int64(1), "material": "oak"},
		map[string]any{"name": "q", "quantity": int64(1), "material": "tin"},
	}
	if diff := cmp.Diff(want, parts); diff != "" || len(got.GetAnnotations()) > 0 {
		t.Errorf("annotations %v, want none; parts (-want +got):\n%s", got.GetAnnotations(), diff)
	}
	err = apply("v1alpha1", "a", strings.Replace(ownQ, `"materials.workshop.example.com/q":"tin"`,
		`"materials.workshop.example.com/p":"pine"`, 1))
	if !apierrors.IsConflict(err) || !strings.Contains(err.Error(),
		`conflict with "b": .spec.parts[name="p"].material`) {
		t.Errorf("apply of another manager's material: %v, want a conflict", err)
	}
}
