// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

var widgetCase = kindCase{
	resource:   resource("widgets"),
	namespaced: true,
	sample:     "widget.yaml",
	change:     `{"spec":{"grade":"Premium"}}`,
	field:      []string{"spec", "grade"},
	value:      "Premium",
}

func init() { kindCases = append(kindCases, widgetCase) }

// TestWidgetInvalid checks the error of each validation rule, by field, and that nothing is
// stored.
func TestWidgetInvalid(t *testing.T) {
	namespace := shared.NewNamespace(t)
	client := widgetCase.client(t, shared.Admin(t), namespace)
	for _, tc := range []struct {
		name   string
		spec   map[string]any
		fields []string
	}{
		{"model missing", map[string]any{}, []string{"spec.model"}},
		{"model no label", map[string]any{"model": "Two Words"}, []string{"spec.model"}},
		{"grade unknown", map[string]any{"model": "m", "grade": "Luxury"}, []string{"spec.grade"}},
		{"replicas negative", map[string]any{"model": "m", "replicas": int64(-1)}, []string{"spec.replicas"}},
		{"replicas above maxReplicas", map[string]any{"model": "m", "replicas": int64(3), "maxReplicas": int64(2)},
			[]string{"spec.replicas"}},
		{"maxReplicas zero", map[string]any{"model": "m", "replicas": int64(0), "maxReplicas": int64(0)},
			[]string{"spec.maxReplicas"}},
		{"part twice", map[string]any{"model": "m", "parts": []any{part("a", 1), part("a", 1)}},
			[]string{"spec.parts[1]"}},
		{"part quantity zero", map[string]any{"model": "m", "parts": []any{part("a", 0)}},
			[]string{"spec.parts[0].quantity"}},
		{"part name no label", map[string]any{"model": "m", "parts": []any{part("A", 1)}},
			[]string{"spec.parts[0].name"}},
		{"part material long", map[string]any{"model": "m",
			"parts": []any{map[string]any{"name": "a", "material": strings.Repeat("x",
				64)}}}, []string{"spec.parts[0].material"}},
		{"too many parts", map[string]any{"model": "m", "parts": manyParts(65)}, []string{"spec.parts"}},
		{"several at once", map[string]any{"grade": "Luxury", "replicas": int64(-1)},
			[]string{"spec.grade", "spec.model", "spec.replicas"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			obj := widgetCase.object(t, "invalid")
			obj.Object["spec"] = tc.spec
			_, err := client.Create(t.Context(), obj, metav1.CreateOptions{})
			if diff := cmp.Diff(tc.fields, invalidFields(t, err)); diff != "" {
				t.Errorf("fields with errors (-want +got):\n%s\n%v", diff, err)
			}
		})
	}
	list, err := client.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 0 {
		t.Errorf("after invalid creates: %d objects stored, error %v; want none", len(list.Items), err)
	}
}

// TestWidgetUpdateRules checks which fields are immutable, and that an unrelated update is not
// blocked.
func TestWidgetUpdateRules(t *testing.T) {
	client := widgetCase.client(t, shared.Admin(t), shared.NewNamespace(t))
	if _, err := client.Create(t.Context(), widgetCase.object(t, "w"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	patch := func(body string, subresources ...string) (*unstructured.Unstructured, error) {
		return client.Patch(t.Context(), "w", types.MergePatchType, []byte(body), metav1.PatchOptions{},
			subresources...)
	}
	_, err := patch(`{"spec":{"model":"other"}}`)
	if diff := cmp.Diff([]string{"spec.model"}, invalidFields(t, err)); diff != "" {
		t.Errorf("change of the immutable model (-want +got):\n%s", diff)
	}
	_, err = patch(`{"status":{"replicas":1,"readyReplicas":2}}`, "status")
	if diff := cmp.Diff([]string{"status.readyReplicas"}, invalidFields(t, err)); diff != "" {
		t.Errorf("more ready than there are (-want +got):\n%s", diff)
	}

	changed, err := patch(`{"spec":{"grade":"Economy"},"status":{"replicas":7}}`)
	if err != nil {
		t.Fatal(err)
	}
	replicas, _, _ := unstructured.NestedInt64(changed.Object, "status", "replicas")
	if changed.GetGeneration() != 2 || replicas != 0 {
		t.Errorf("after a change of spec and status through the main resource: generation %d, status.replicas %d; "+
			"want 2 and 0",
			changed.GetGeneration(), replicas)
	}
	changed, err = patch(`{"spec":{"grade":"Premium"},"status":{"replicas":7}}`, "status")
	if err != nil {
		t.Fatal(err)
	}
	replicas, _, _ = unstructured.NestedInt64(changed.Object, "status", "replicas")
	grade, _, _ := unstructured.NestedString(changed.Object, "spec", "grade")
	if changed.GetGeneration() != 2 || replicas != 7 || grade != "Economy" {
		t.Errorf("after a change of spec and status through /status: generation %d, status.replicas %d, spec.grade "+
			"%s; want 2, 7 and Economy",
			changed.GetGeneration(), replicas, grade)
	}
}

func part(name string, quantity int64) map[string]any {
	return map[string]any{"name": name, "quantity": quantity}
}

func manyParts(n int) []any {
	var parts []any
	for i := range n {
		parts = append(parts, part(fmt.Sprintf("p%d", i), 1))
	}
	return parts
}
