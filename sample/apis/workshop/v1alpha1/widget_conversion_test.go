// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
)

func newScheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1.AddToScheme, AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return scheme
}

// TestWidgetConversion checks that each field is converted to its counterpart, and that a field
// without one is converted to an annotation.
func TestWidgetConversion(t *testing.T) {
	internal := &v1.Widget{
		ObjectMeta: metav1.ObjectMeta{Name: "w", Annotations: map[string]string{"a": "b",
			RemarkAnnotation: "for the hall"}},
		Spec: v1.WidgetSpec{
			Model: "pendulum", Grade: v1.WidgetGradePremium, Replicas: new(int32(2)), MaxReplicas: new(int32(5)),
			Parts: []v1.WidgetPart{{Name: "screw", Quantity: new(int32(12)), Material: "steel"},
				{Name: "frame", Material: "oak"}, {Name: "glass"}},
		},
		Status: v1.WidgetStatus{ObservedGeneration: 2, Replicas: 2, ReadyReplicas: 1, Selector: "a=b"},
	}
	old := &Widget{
		ObjectMeta: metav1.ObjectMeta{Name: "w", Annotations: map[string]string{"a": "b", MaterialPrefix +
			"frame": "oak", MaterialPrefix + "screw": "steel"}},
		Spec: WidgetSpec{
			Design: "pendulum", Quality: WidgetQualityPremium,
			Scale:  WidgetScale{Desired: new(int32(2)), Limit: new(int32(5))},
			Parts:  []WidgetPart{{Name: "screw", Count: new(int32(12))}, {Name: "frame"}, {Name: "glass"}},
			Remark: "for the hall",
		},
		Status: WidgetStatus{ObservedGeneration: 2, Replicas: 2, ReadyReplicas: 1, Selector: "a=b"},
	}
	scheme := newScheme(t)
	internalBefore, oldBefore := internal.DeepCopy(), old.DeepCopy()
	gotOld, gotInternal := &Widget{}, &v1.Widget{}
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

// TestWidgetAnnotations checks that the annotations of this version become fields, including
// those that a client changed.
func TestWidgetAnnotations(t *testing.T) {
	for _, tc := range []struct {
		name        string
		annotations map[string]string
		remark      string
		want        map[string]string
		material    string
	}{
		{"none", nil, "", nil, ""},
		{"material", map[string]string{MaterialPrefix + "screw": "steel", "a": "b"}, "",
			map[string]string{"a": "b"}, "steel"},
		{"material of a part that was deleted", map[string]string{MaterialPrefix + "frame": "oak"}, "", nil, ""},
		{"empty material", map[string]string{MaterialPrefix + "screw": ""}, "", nil, ""},
		{"remark in both places", map[string]string{RemarkAnnotation: "old"}, "new",
			map[string]string{RemarkAnnotation: "new"}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			old := Widget{ObjectMeta: metav1.ObjectMeta{Annotations: tc.annotations},
				Spec: WidgetSpec{Parts: []WidgetPart{{Name: "screw"}}, Remark: tc.remark}}
			got := &v1.Widget{}
			if err := newScheme(t).Convert(&old, got, nil); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got.Annotations); diff != "" || got.Spec.Parts[0].Material != tc.material {
				t.Errorf("material %q, want %q; annotations (-want +got):\n%s", got.Spec.Parts[0].Material,
					tc.material, diff)
			}
		})
	}
}
