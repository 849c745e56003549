// SPDX-License-Identifier: Apache-2.0

package widget

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/extension-apiserver/pkg/apitesting"
	"example.com/extension-apiserver/sample/apis/workshop/install"
	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
	"example.com/extension-apiserver/sample/apis/workshop/v1alpha1"
	validation "example.com/extension-apiserver/sample/validation/workshop"
)

func parts(n int) []v1.WidgetPart {
	var all []v1.WidgetPart
	for i := range n {
		all = append(all, v1.WidgetPart{Name: fmt.Sprintf("part-%d", i), Quantity: new(int32(1))})
	}
	return all
}

// TestValidate checks every validation rule for a new widget at its limits, both the tags and the
// functions of the strategy.
func TestValidate(t *testing.T) {
	spec := func(change func(*v1.WidgetSpec)) func(*v1.Widget) {
		return func(w *v1.Widget) { change(&w.Spec) }
	}
	for _, tc := range []struct {
		name   string
		change func(*v1.Widget)
		want   []string
	}{
		{"valid", func(*v1.Widget) {}, nil},
		{"name", func(w *v1.Widget) { w.Name = "W_" }, []string{"metadata.name: Invalid value"}},
		{"model missing", spec(func(s *v1.WidgetSpec) { s.Model = "" }), []string{"spec.model: Required value"}},
		{"model no label", spec(func(s *v1.WidgetSpec) { s.Model = "Big Ben" }),
			[]string{"spec.model: Invalid value"}},
		{"model longest", spec(func(s *v1.WidgetSpec) { s.Model = strings.Repeat("x", 63) }), nil},
		{"model too long", spec(func(s *v1.WidgetSpec) { s.Model = strings.Repeat("x", 64) }),
			[]string{"spec.model: Invalid value"}},
		{"grade unknown", spec(func(s *v1.WidgetSpec) { s.Grade = "Golden" }),
			[]string{"spec.grade: Unsupported value"}},
		{"grade economy", spec(func(s *v1.WidgetSpec) { s.Grade = v1.WidgetGradeEconomy }), nil},
		{"grade premium", spec(func(s *v1.WidgetSpec) { s.Grade = v1.WidgetGradePremium }), nil},
		{"no replicas", spec(func(s *v1.WidgetSpec) { s.Replicas = new(int32(0)) }), nil},
		{"negative replicas", spec(func(s *v1.WidgetSpec) { s.Replicas = new(int32(-1)) }),
			[]string{"spec.replicas: Invalid value"}},
		{"no limit", spec(func(s *v1.WidgetSpec) { s.MaxReplicas, s.Replicas = nil, new(int32(1000)) }), nil},
		{"limit 0", spec(func(s *v1.WidgetSpec) { s.MaxReplicas, s.Replicas = new(int32(0)), new(int32(0)) }),
			[]string{"spec.maxReplicas: Invalid value"}},
		{"at the limit", spec(func(s *v1.WidgetSpec) { s.Replicas = new(int32(5)) }), nil},
		{"above the limit", spec(func(s *v1.WidgetSpec) { s.Replicas = new(int32(6)) }),
			[]string{"spec.replicas: Invalid value"}},
		{"64 parts", spec(func(s *v1.WidgetSpec) { s.Parts = parts(64) }), nil},
		{"65 parts", spec(func(s *v1.WidgetSpec) { s.Parts = parts(65) }), []string{"spec.parts: Too many"}},
		{"part twice", spec(func(s *v1.WidgetSpec) { s.Parts = append(parts(1), parts(1)...) }),
			[]string{"spec.parts[1]: Duplicate value"}},
		{"part without name", spec(func(s *v1.WidgetSpec) { s.Parts[0].Name = "" }),
			[]string{"spec.parts[0].name: Required value"}},
		{"part's name no label", spec(func(s *v1.WidgetSpec) { s.Parts[0].Name = "a.b" }),
			[]string{"spec.parts[0].name: Invalid value"}},
		{"no such part", spec(func(s *v1.WidgetSpec) { s.Parts[0].Quantity = new(int32(0)) }),
			[]string{"spec.parts[0].quantity: Invalid value"}},
		{"material longest", spec(func(s *v1.WidgetSpec) { s.Parts[0].Material = strings.Repeat("x", 63) }), nil},
		{"material too long", spec(func(s *v1.WidgetSpec) { s.Parts[0].Material = strings.Repeat("x", 64) }),
			[]string{"spec.parts[0].material: Too long"}},
		{"all together", spec(func(s *v1.WidgetSpec) {
			s.Model, s.Grade, s.Replicas = "", "Golden",
				new(int32(6))
		}), []string{
			"spec.grade: Unsupported value", "spec.model: Required value", "spec.replicas: Invalid value",
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			eachVersion(t, func(t *testing.T, rules apitesting.KindRules, in func([]string) []string) {
				got := problems(rules.Create(changed(tc.change)))
				if diff := cmp.Diff(in(tc.want), got); diff != "" {
					t.Errorf("errors (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestMaterialAnnotation checks that only v1alpha1, which has no field for a material, accepts one in
// an annotation.
func TestMaterialAnnotation(t *testing.T) {
	name := v1alpha1.MaterialPrefix + "screw"
	for version, rules := range apitesting.Rules(t, Kind.NewStorage, install.AddToScheme, validation.AddToScheme) {
		want := []string{"metadata.annotations[" + name + "]: Forbidden"}
		if version == "v1alpha1" {
			want = nil
		}
		got := problems(rules.Create(changed(func(w *v1.Widget) { w.Annotations = map[string]string{name: "steel"} })))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: errors (-want +got):\n%s", version, diff)
		}
	}
}

// TestValidateUpdate checks which fields are immutable, and that an update ignores invalid
// unchanged fields.
func TestValidateUpdate(t *testing.T) {
	aboveLimit := func(w *v1.Widget) { w.Spec.Replicas = new(int32(6)) }
	goldenGrade := func(w *v1.Widget) { w.Spec.Grade = "Golden" }
	for _, tc := range []struct {
		name        string
		old, change func(*v1.Widget)
		want        []string
	}{
		{"nothing", nil, func(*v1.Widget) {}, nil},
		{"model", nil, func(w *v1.Widget) { w.Spec.Model = "other" }, []string{"spec.model: Invalid value"}},
		{"model unset", nil, func(w *v1.Widget) { w.Spec.Model = "" },
			[]string{"spec.model: Invalid value", "spec.model: Required value"}},
		{"name", nil, func(w *v1.Widget) { w.Name = "x" }, []string{"metadata.name: Invalid value"}},
		{"above the limit", nil, aboveLimit, []string{"spec.replicas: Invalid value"}},
		{"limit below", nil, func(w *v1.Widget) { w.Spec.MaxReplicas = new(int32(1)) },
			[]string{"spec.replicas: Invalid value"}},
		{"grade", nil, goldenGrade, []string{"spec.grade: Unsupported value"}},
		{"other field while above the limit", aboveLimit, func(w *v1.Widget) { w.Spec.Parts = nil }, nil},
		{"label while above the limit", aboveLimit, func(w *v1.Widget) { w.Labels = nil }, nil},
		{"still above the limit", aboveLimit, func(w *v1.Widget) { w.Spec.Replicas = new(int32(7)) },
			[]string{"spec.replicas: Invalid value"}},
		{"material", nil, func(w *v1.Widget) { w.Spec.Parts[0].Material = strings.Repeat("x", 64) },
			[]string{"spec.parts[0].material: Too long"}},
		{"other field while the material is too long", func(w *v1.Widget) {
			w.Spec.Parts[0].Material = strings.Repeat("x", 64)
		},
			func(w *v1.Widget) { w.Spec.Parts[0].Quantity = new(int32(2)) }, nil},
		{"other field while the grade is unknown", goldenGrade,
			func(w *v1.Widget) { w.Spec.Replicas = new(int32(3)) }, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			eachVersion(t, func(t *testing.T, rules apitesting.KindRules, in func([]string) []string) {
				old := stored()
				if tc.old != nil {
					tc.old(old)
				}
				updated := old.DeepCopy()
				tc.change(updated)
				got := problems(rules.Update(updated, old))
				if diff := cmp.Diff(in(tc.want), got); diff != "" {
					t.Errorf("errors (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestLimitMessage checks that the message of the handwritten validation names the fields to
// compare, with the field names of the version.
func TestLimitMessage(t *testing.T) {
	for version, rules := range apitesting.Rules(t, Kind.NewStorage, install.AddToScheme, validation.AddToScheme) {
		limit := "spec.maxReplicas"
		if version == "v1alpha1" {
			limit = "spec.scale.limit"
		}
		want := "spec.replicas: Invalid value: 6: must not be greater than " + limit
		errs := rules.Create(changed(func(w *v1.Widget) { w.Spec.Replicas = new(int32(6)) }))
		if got := errs.ToAggregate(); got == nil || got.Error() != want {
			t.Errorf("%s: got %v, want %s", version, got, want)
		}
	}
}

// TestValidateStatus checks that a write of the status applies the validation of the status and
// not that of the spec.
func TestValidateStatus(t *testing.T) {
	ready := metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "AllThere",
		LastTransitionTime: metav1.Unix(1, 0)}
	for _, tc := range []struct {
		name   string
		status v1.WidgetStatus
		want   []string
	}{
		{"valid", v1.WidgetStatus{Replicas: 3, ReadyReplicas: 3}, nil},
		{"more ready than there are", v1.WidgetStatus{Replicas: 3, ReadyReplicas: 4},
			[]string{"status.readyReplicas: Invalid value"}},
		{"negative", v1.WidgetStatus{ObservedGeneration: -1, Replicas: -1, ReadyReplicas: -2}, []string{
			"status.observedGeneration: Invalid value", "status.readyReplicas: Invalid value",
			"status.replicas: Invalid value",
		}},
		{"selector", v1.WidgetStatus{Selector: "a in (b"}, []string{"status.selector: Invalid value"}},
		{"condition", v1.WidgetStatus{Conditions: []metav1.Condition{ready}}, nil},
		{"condition twice", v1.WidgetStatus{Conditions: []metav1.Condition{ready, ready}},
			[]string{"status.conditions[1]: Duplicate value"}},
		{"condition of nothing", v1.WidgetStatus{Conditions: []metav1.Condition{{Type: "Ready"}}}, []string{
			"status.conditions[0].lastTransitionTime: Required value", "status.conditions[0].reason: Required value",
			"status.conditions[0].status: Required value",
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			eachVersion(t, func(t *testing.T, rules apitesting.KindRules, in func([]string) []string) {
				// A spec that was stored before its validation existed does not block a status
				// update.
				old := changed(func(w *v1.Widget) { w.Spec.Grade, w.Spec.Replicas = "Golden", new(int32(6)) })
				updated := old.DeepCopy()
				updated.Status = tc.status
				got := problems(rules.UpdateStatus(updated, old))
				if diff := cmp.Diff(in(tc.want), got); diff != "" {
					t.Errorf("errors (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestStatusUpdateIgnoresInvalidUnchangedFields checks that a status update ignores invalid
// unchanged fields that were stored before their validation existed.
func TestStatusUpdateIgnoresInvalidUnchangedFields(t *testing.T) {
	eachVersion(t, func(t *testing.T, rules apitesting.KindRules, _ func([]string) []string) {
		old := changed(func(w *v1.Widget) {
			w.Status = v1.WidgetStatus{Replicas: 1, ReadyReplicas: 2, Selector: "a in (b",
				Conditions: []metav1.Condition{{Type: "Ready"}}}
		})
		updated := old.DeepCopy()
		updated.Status.ObservedGeneration = 3
		if got := problems(rules.UpdateStatus(updated, old)); got != nil {
			t.Errorf("got %v, want no error", got)
		}
	})
}
