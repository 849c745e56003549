// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// TestPatchesOfWrongType checks that a patch whose content does not match the type gets a 422
// response that names the field, and changes nothing.
func TestPatchesOfWrongType(t *testing.T) {
	client := widgetCase.client(t, shared.Admin(t), shared.NewNamespace(t))
	if _, err := client.Create(t.Context(), widgetCase.object(t, "w"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	before, err := client.Patch(t.Context(), "w", types.MergePatchType,
		[]byte(`{"status":{"conditions":[{"type":"Ready","status":"True","reason":"R","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`), metav1.PatchOptions{}, "status")
	if err != nil {
		t.Fatal(err)
	}
	const apply, strategic = types.ApplyYAMLPatchType, types.StrategicMergePatchType
	widget := func(content string) string {
		return `{"apiVersion":"workshop.example.com/v1","kind":"Widget","metadata":{"name":"w"},` + content + `}`
	}
	scale := func(replicas string) string {
		return `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"w"},"spec":{"replicas":` +
			replicas + `}}`
	}
	for name, tc := range map[string]struct {
		patchType   types.PatchType
		body        string
		subresource string
		field       string
	}{
		"merge key is an object": {strategic, `{"spec":{"parts":[{"name":{"a":1}}]}}`, "",
			"spec.parts[0].name"},
		"no merge key": {strategic, `{"spec":{"parts":[{"material":"x"}]}}`, "",
			"spec.parts[0].name"},
		"element is null": {strategic, `{"spec":{"parts":[null]}}`, "", "spec.parts[0]"},
		"finalizer is an object": {strategic, `{"metadata":{"finalizers":[{"a":1}]}}`, "",
			"metadata.finalizers[0]"},
		"owner without uid": {strategic, `{"metadata":{"ownerReferences":[{"name":"x"}]}}`, "",
			"metadata.ownerReferences[0].uid"},
		"unknown directive": {strategic, `{"spec":{"$patch":"merge"}}`, "", "spec.$patch"},
		"order of objects": {strategic, `{"spec":{"$setElementOrder/parts":[{"name":[]}]}}`, "",
			"spec.$setElementOrder/parts[0].name"},
		"retain objects": {strategic, `{"spec":{"$retainKeys":[{}]}}`, "", "spec.$retainKeys"},
		"delete objects": {strategic, `{"metadata":{"$deleteFromPrimitiveList/finalizers":[{}]}}`,
			"", "metadata.$deleteFromPrimitiveList/finalizers[0]"},
		"rounded, strategic": {strategic, `{"spec":{"replicas":2.99999999999999999999}}`, "",
			"spec.replicas"},
		"rounded, apply": {apply, widget(`"spec":{"replicas":2.99999999999999999999}`), "",
			"spec.replicas"},
		"rounded, apply as YAML": {apply,
			"apiVersion: workshop.example.com/v1\nkind: Widget\nmetadata: {name: w}\nspec:\n  replicas: " +
				"2.99999999999999999999\n", "", "spec.replicas"},
		"rounded, scale":   {apply, scale("2.99999999999999999999"), "scale", "spec.replicas"},
		"int32, strategic": {strategic, `{"spec":{"replicas":4294967296}}`, "", "spec.replicas"},
		"int32, applied": {apply, widget(`"spec":{"model":"pendulum","replicas":4294967296}`), "",
			"spec.replicas"},
		"int32 of a part, applied": {apply, widget(
			`"spec":{"model":"pendulum","parts":[{"name":"q","quantity":2147483648}]}`), "", "spec.parts[0].quantity"},
		"a fraction, applied": {apply, widget(`"spec":{"model":"pendulum","replicas":1.5}`), "",
			"spec.replicas"},
		"int64, applied": {apply, widget(`"status":{"observedGeneration":9223372036854775808}`),
			"status", "status.observedGeneration"},
		"int32 of the status, strategic": {strategic, `{"status":{"replicas":4294967299}}`, "status",
			"status.replicas"},
		"int32 of the status, applied": {apply, widget(`"status":{"readyReplicas":4294967299}`), "status",
			"status.readyReplicas"},
		"condition is a string": {strategic, `{"status":{"conditions":["Ready"]}}`, "status",
			"status.conditions[0]"},
		"merge key of a condition is a list": {strategic, `{"status":{"conditions":[{"type":[]}]}}`, "status",
			"status.conditions[0].type"},
		"scale beyond int32, strategic": {strategic, `{"spec":{"replicas":4294967296}}`, "scale",
			"spec.replicas"},
		"scale beyond int32, applied":  {apply, scale("4294967296"), "scale", "spec.replicas"},
		"negative scale beyond int32":  {apply, scale("-4294967295"), "scale", "spec.replicas"},
		"scale is a string, strategic": {strategic, `{"spec":{"replicas":"2"}}`, "scale", "spec.replicas"},
		"unknown directive of scale":   {strategic, `{"spec":{"$retain":[]}}`, "scale", "spec.$retain"},
		"unknown directive of the status": {strategic, `{"status":{"$setElementOrder":[]}}`, "status",
			"status.$setElementOrder"},
		"managed fields are a string, status": {strategic, `{"metadata":{"managedFields":"x"}}`, "status",
			"metadata.managedFields"},
	} {
		t.Run(name, func(t *testing.T) {
			options := metav1.PatchOptions{}
			if tc.patchType == apply {
				options.FieldManager, options.Force = "test", new(true)
			}
			_, err := client.Patch(t.Context(), "w", tc.patchType, []byte(tc.body), options,
				slices.DeleteFunc([]string{tc.subresource}, func(s string) bool { return s == "" })...)
			if diff := cmp.Diff([]string{tc.field}, invalidFields(t, err)); diff != "" {
				t.Errorf("fields with errors (-want +got):\n%s\n%v", diff, err)
			}
		})
	}
	after, err := client.Get(t.Context(), "w", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("rejected patches changed the object (-before +after):\n%s", diff)
	}
}

// TestValidPatches checks that each type of patch accepts what built-in kinds accept.
func TestValidPatches(t *testing.T) {
	client := widgetCase.client(t, shared.Admin(t), shared.NewNamespace(t))
	if _, err := client.Create(t.Context(), widgetCase.object(t, "w"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		patchType types.PatchType
		body      string
		parts     []string
		replicas  int64
	}{
		{types.StrategicMergePatchType, `{"spec":{"replicas":3.0,"parts":[{"name":"screw","$patch":"delete"},{"name":"nut"}],"$setElementOrder/parts":[{"name":"nut"},{"name":"frame"}]}}`, []string{"nut", "frame"}, 3},
		{types.StrategicMergePatchType, `{"spec":{"parts":[{"$patch":"replace"},{"name":"bolt"}]}}`,
			[]string{"bolt"}, 3},
		{types.ApplyYAMLPatchType,
			"{apiVersion: workshop.example.com/v1, kind: Widget, metadata: {name: w}, spec: {model: pendulum, " +
				"replicas: 4.0, parts: [{name: nail}]}}", []string{"bolt", "nail"}, 4},
	} {
		obj, err := client.Patch(t.Context(), "w", tc.patchType, []byte(tc.body),
			metav1.PatchOptions{FieldManager: "test", Force: forced(tc.patchType)})
		if err != nil {
			t.Fatalf("%s: %v", tc.body, err)
		}
		parts, _, _ := unstructured.NestedSlice(obj.Object, "spec", "parts")
		var names []string
		for _, part := range parts {
			names = append(names, part.(map[string]any)["name"].(string))
		}
		replicas, _, _ := unstructured.NestedInt64(obj.Object, "spec", "replicas")
		if diff := cmp.Diff(tc.parts, names); diff != "" || replicas != tc.replicas {
			t.Errorf("%s: %d replicas, want %d; parts (-want +got):\n%s", tc.body, replicas, tc.replicas, diff)
		}
	}
	status := `{"apiVersion":"workshop.example.com/v1","kind":"Widget","metadata":{"name":"w"},"status":{"observedGeneration":9007199254740993}}`
	obj, err := client.Patch(t.Context(), "w", types.ApplyYAMLPatchType, []byte(status),
		metav1.PatchOptions{FieldManager: "test"}, "status")
	if err != nil {
		t.Fatal(err)
	}
	if got, _, _ := unstructured.NestedInt64(obj.Object, "status", "observedGeneration"); got != 9007199254740993 {
		t.Errorf("applied observedGeneration: %d, want 9007199254740993", got)
	}
	ambiguous := "{apiVersion: workshop.example.com/v1, kind: Widget, metadata: {name: w, labels: {1: a, \"1\": " +
		"b}}, spec: {model: pendulum}}"
	_, err = client.Patch(t.Context(), "w", types.ApplyYAMLPatchType, []byte(ambiguous),
		metav1.PatchOptions{FieldManager: "test"})
	if !apierrors.IsBadRequest(err) {
		t.Errorf("apply with the keys 1 and \"1\": %v, want BadRequest", err)
	}
	// The handler itself reports bodies that the earlier checks skip, and bodies that are too
	// long.
	for _, body := range []string{"{", "[]", "1"} {
		_, err := client.Patch(t.Context(), "w", types.StrategicMergePatchType, []byte(body), metav1.PatchOptions{})
		if !apierrors.IsBadRequest(err) {
			t.Errorf("patch with %s: %v, want BadRequest", body, err)
		}
	}
	_, err = client.Patch(t.Context(), "w", types.StrategicMergePatchType, make([]byte, 3<<20+1), metav1.PatchOptions{})
	if status := apierrors.APIStatus(nil); !apierrors.IsRequestEntityTooLargeError(err) {
		t.Errorf("patch of 3 MiB and a byte: %v (%v), want %d", err, status, http.StatusRequestEntityTooLarge)
	}
}

// TestUnmergeablePatches checks that a patch that matches the type but cannot be merged into
// the object gets a 422 response, in dry runs too.
func TestUnmergeablePatches(t *testing.T) {
	client := widgetCase.client(t, shared.Admin(t), shared.NewNamespace(t))
	widget := widgetCase.object(t, "w")
	unstructured.RemoveNestedField(widget.Object, "spec", "parts")
	if _, err := client.Create(t.Context(), widget, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	failures := func() float64 {
		return metric(t, direct(t, shared), "apiserver_request_total",
			map[string]string{"code": "500", "verb": "PATCH", "resource": "widgets", "dry_run": ""})
	}
	before := failures()
	for _, dryRun := range [][]string{nil, {metav1.DryRunAll}} {
		_, err := client.Patch(t.Context(), "w", types.StrategicMergePatchType,
			[]byte(`{"spec":{"parts":[],"$setElementOrder/parts":[{"name":"a"}]}}`),
			metav1.PatchOptions{DryRun: dryRun})
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(),
			"cannot be merged into the object: no elements") {
			t.Errorf("dry run %v: %v, want Invalid with the reason", dryRun, err)
		}
	}
	if got := failures() - before; got != 0 {
		t.Errorf("apiserver_request_total counts %g responses with 500, want 0: an alert looks at them", got)
	}
}

// TestCostlyJSONPatch checks that the server rejects a patch that would take the library more
// than a minute.
func TestCostlyJSONPatch(t *testing.T) {
	client := widgetCase.client(t, shared.Admin(t), shared.NewNamespace(t))
	if _, err := client.Create(t.Context(), widgetCase.object(t, "w"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	body := `[{"op":"add","path":"/x","value":[` + strings.Repeat("0,", 9_000) + `0]}` +
		strings.Repeat(`,{"op":"add","path":"/x/0","value":0}`, 9000) + "]"
	_, err := client.Patch(t.Context(), "w", types.JSONPatchType, []byte(body), metav1.PatchOptions{})
	if !apierrors.IsRequestEntityTooLargeError(err) || !strings.Contains(err.Error(),
		"the 9001 operations of a JSON patch, 9000 of them insertions,") {
		t.Errorf("got %v, want 413 that names the number of operations", err)
	}
}

// TestInvalidUTF8 checks that the server stores no text that the client did not send.
func TestInvalidUTF8(t *testing.T) {
	namespace := shared.NewNamespace(t)
	if _, err := widgetCase.client(t, shared.Admin(t), namespace).Create(t.Context(), widgetCase.object(t, "w"),
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	collection := "/apis/workshop.example.com/v1/namespaces/" + namespace + "/widgets"
	const whole = `{"apiVersion":"workshop.example.com/v1","kind":"Widget","metadata":{"name":"w","annotations":{"a":"` + "\xff" + `"}},"spec":{"model":"pendulum"}}`
	const part = `{"metadata":{"annotations":{"a":"` + "\xff" + `"}}}`
	surrogate := strings.NewReplacer("\xff", `\ud800`)
	for _, tc := range []struct{ method, path, contentType, body string }{
		{http.MethodPost, collection, "application/json", whole},
		{http.MethodPost, collection, "", whole},
		{http.MethodPost, collection, "application/yaml", whole},
		{http.MethodPost, collection, "application/yaml",
			"{apiVersion: workshop.example.com/v1, kind: Widget, metadata: {name: w, annotations: {a: !!binary " +
				"gIGC}}, spec: {model: pendulum}}"},
		{http.MethodPut, collection + "/w", "application/json", whole},
		{http.MethodPatch, collection + "/w", string(types.MergePatchType), part},
		{http.MethodPatch, collection + "/w", string(types.StrategicMergePatchType), part},
		{http.MethodPatch, collection + "/w", string(types.JSONPatchType),
			`[{"op":"add","path":"/metadata/annotations","value":{"a":"` + "\xff" + `"}}]`},
		{http.MethodPatch, collection + "/w?fieldManager=test", string(types.ApplyYAMLPatchType), whole},
		{http.MethodPatch, collection + "/w?fieldManager=test", string(types.ApplyYAMLPatchType), "{apiVersion: workshop.example.com/v1, kind: Widget, metadata: {name: w, annotations: {a: !!binary gIGC}}}"},
	} {
		for _, body := range []string{tc.body, surrogate.Replace(tc.body)} {
			header := http.Header{"Content-Type": {tc.contentType}}
			if a := direct(t, shared).Do(t, tc.method, tc.path, header,
				[]byte(body)); a.Status != http.StatusBadRequest {
				t.Errorf("%s as %q of %q: got %d with %s, want 400", tc.method, tc.contentType, body, a.Status, a.Body)
			}
		}
	}
}

// TestJSONPatchComparesNull checks that the server survives a JSON patch that compares a list
// with a null, for which the library panics.
func TestJSONPatchComparesNull(t *testing.T) {
	client := widgetCase.client(t, shared.Admin(t), shared.NewNamespace(t))
	if _, err := client.Create(t.Context(), widgetCase.object(t, "w"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, subresource := range []string{"", "status", "scale"} {
		_, err := client.Patch(t.Context(), "w", types.JSONPatchType,
			[]byte(`[{"op":"add","path":"/x","value":[1]},{"op":"test","path":"/x","value":[null]}]`),
			metav1.PatchOptions{}, strings.Fields(subresource)...)
		if !apierrors.IsInvalid(err) {
			t.Errorf("%q: got %v, want Invalid", subresource, err)
		}
	}
}

// TestSchemaErrorsAreBounded checks that the error response to an apply configuration is small
// although each of many errors has a long key in its path.
func TestSchemaErrorsAreBounded(t *testing.T) {
	client := widgetCase.client(t, shared.Admin(t), shared.NewNamespace(t))
	long := strings.Repeat("a", 1<<18)
	part := `{"name":"` + long + `",` + `"unknown":1}`
	body := `{"apiVersion":"workshop.example.com/v1","kind":"Widget","metadata":{"name":"w"},"spec":{"model":"pendulum","parts":[` + part + "," + part + `]}}`
	_, err := client.Patch(t.Context(), "w", types.ApplyYAMLPatchType, []byte(body),
		metav1.PatchOptions{FieldManager: "test"})
	if !apierrors.IsBadRequest(err) || len(err.Error()) > 4<<10 {
		t.Errorf("got an error of %d bytes, want a BadRequest of at most 4 KiB: %.1000v", len(err.Error()), err)
	}
}

func forced(patchType types.PatchType) *bool {
	if patchType == types.ApplyYAMLPatchType {
		return new(true)
	}
	return nil
}
