// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"example.com/extension-apiserver/sample/apis/workshop"
)

func newScheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{workshop.AddToScheme, AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return scheme
}

// TestWidgetConversion: each field has its place in the other form, and what has none is in an annotation.
func TestWidgetConversion(t *testing.T) {
	internal := &workshop.Widget{
		ObjectMeta: metav1.ObjectMeta{Name: "w", Annotations: map[string]string{"a": "b", RemarkAnnotation: "for the hall"}},
		Spec: workshop.WidgetSpec{
			Model: "pendulum", Grade: workshop.WidgetGradePremium, Replicas: new(int32(2)), MaxReplicas: new(int32(5)),
			Parts: []workshop.WidgetPart{{Name: "screw", Quantity: new(int32(12)), Material: "steel"}, {Name: "frame", Material: "oak"}, {Name: "glass"}},
		},
		Status: workshop.WidgetStatus{ObservedGeneration: 2, Replicas: 2, ReadyReplicas: 1, Selector: "a=b"},
	}
	old := &Widget{
		ObjectMeta: metav1.ObjectMeta{Name: "w", Annotations: map[string]string{"a": "b", MaterialsAnnotation: `{"frame":"oak","screw":"steel"}`}},
		Spec: WidgetSpec{
			Design: "pendulum", Quality: WidgetQualityPremium, Scale: WidgetScale{Desired: new(int32(2)), Limit: new(int32(5))},
			Parts:  []WidgetPart{{Name: "screw", Count: new(int32(12))}, {Name: "frame"}, {Name: "glass"}},
			Remark: "for the hall",
		},
		Status: WidgetStatus{ObservedGeneration: 2, Replicas: 2, ReadyReplicas: 1, Selector: "a=b"},
	}
	scheme := newScheme(t)
	internalBefore, oldBefore := internal.DeepCopy(), old.DeepCopy()
	gotOld, gotInternal := &Widget{}, &workshop.Widget{}
	if err := scheme.Convert(internal, gotOld, nil); err != nil {
		t.Fatal(err)
	}
	if err := scheme.Convert(old, gotInternal, nil); err != nil {
		t.Fatal(err)
	}
	for name, diff := range map[string]string{
		"to v1alpha1":            cmp.Diff(old, gotOld),
		"from v1alpha1":          cmp.Diff(internal, gotInternal),
		"internal form, after":   cmp.Diff(internalBefore, internal),
		"v1alpha1's form, after": cmp.Diff(oldBefore, old),
	} {
		if diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestWidgetAnnotations: what a client of the old version makes of the annotations has a meaning, or stays for validation to
// refuse.
func TestWidgetAnnotations(t *testing.T) {
	parts := []WidgetPart{{Name: "screw"}}
	for _, tc := range []struct {
		name      string
		old       Widget
		remark    string
		materials string
		left      string
	}{
		{"none", Widget{Spec: WidgetSpec{Parts: parts}}, "", "", ""},
		{"a part that is gone", withMaterials(`{"screw":"steel","frame":"oak"}`, parts), "", "steel", ""},
		{"dropped", withMaterials("{}", parts), "", "", ""},
		{"no JSON", withMaterials("steel", parts), "", "", "steel"},
		{"no strings", withMaterials(`{"screw":1}`, parts), "", "", `{"screw":1}`},
		{"remark in both places", Widget{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{RemarkAnnotation: "old"}},
			Spec: WidgetSpec{Parts: parts, Remark: "new"}}, "new", "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := &workshop.Widget{}
			if err := newScheme(t).Convert(&tc.old, got, nil); err != nil {
				t.Fatal(err)
			}
			if got.Annotations[RemarkAnnotation] != tc.remark || got.Spec.Parts[0].Material != tc.materials {
				t.Errorf("got remark %q and material %q, want %q and %q", got.Annotations[RemarkAnnotation], got.Spec.Parts[0].Material, tc.remark, tc.materials)
			}
			if left := got.Annotations[MaterialsAnnotation]; left != tc.left {
				t.Errorf("annotation %s: got %q, want %q", MaterialsAnnotation, left, tc.left)
			}
		})
	}
}

func withMaterials(materials string, parts []WidgetPart) Widget {
	return Widget{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{MaterialsAnnotation: materials}}, Spec: WidgetSpec{Parts: parts}}
}
