// SPDX-License-Identifier: Apache-2.0

package widget

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"example.com/extension-apiserver/sample/apis/workshop"
	"example.com/extension-apiserver/sample/apis/workshop/install"
)

// TestCreate: a client can set neither the status nor the generation of a new widget.
func TestCreate(t *testing.T) {
	eachVersion(t, "", func(t *testing.T, ctx context.Context, _ func([]string) []string) {
		got := changed(func(w *workshop.Widget) { w.Generation = 99 })
		if err := rest.BeforeCreate(newStrategy(newScheme()), ctx, got); err != nil {
			t.Fatalf("create a valid widget: %v", err)
		}
		want := changed(func(w *workshop.Widget) { w.Status, w.Generation = workshop.WidgetStatus{}, 1 })
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("widget as it is stored (-want +got):\n%s", diff)
		}
	})
}

// TestUpdate: the main resource leaves the status alone, and the generation counts the changes of the spec.
func TestUpdate(t *testing.T) {
	for _, tc := range []struct {
		name       string
		change     func(*workshop.Widget)
		generation int64
	}{
		{"nothing", func(*workshop.Widget) {}, 3},
		{"label", func(w *workshop.Widget) { w.Labels = map[string]string{"x": "y"} }, 3},
		{"replicas", func(w *workshop.Widget) { w.Spec.Replicas = new(int32(4)) }, 4},
		{"part", func(w *workshop.Widget) { w.Spec.Parts[0].Material = "brass" }, 4},
		{"generation", func(w *workshop.Widget) { w.Generation = 99 }, 3},
		{"status", func(w *workshop.Widget) { w.Status.ReadyReplicas = 0 }, 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			eachVersion(t, "", func(t *testing.T, ctx context.Context, _ func([]string) []string) {
				got, old := changed(tc.change), stored()
				if err := rest.BeforeUpdate(newStrategy(newScheme()), ctx, got, old); err != nil {
					t.Fatalf("update: %v", err)
				}
				want := changed(tc.change)
				want.Status, want.Generation = stored().Status, tc.generation
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("widget as it is stored (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(stored(), old); diff != "" {
					t.Errorf("the old widget was changed (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestStatusUpdate: the status subresource changes the status and nothing else.
func TestStatusUpdate(t *testing.T) {
	update := func(w *workshop.Widget) {
		w.Status = workshop.WidgetStatus{ObservedGeneration: 3, Replicas: 4, ReadyReplicas: 4, Selector: "x=y",
			Conditions: []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue, Reason: "AllThere",
				LastTransitionTime: metav1.Unix(1, 0)}}}
	}
	eachVersion(t, "status", func(t *testing.T, ctx context.Context, _ func([]string) []string) {
		got := changed(func(w *workshop.Widget) {
			update(w)
			w.Spec = workshop.WidgetSpec{Model: "other"}
			w.Generation = 99
			w.Labels, w.Annotations, w.Finalizers, w.OwnerReferences = nil, nil, nil, nil
		})
		if err := rest.BeforeUpdate(statusStrategy{newStrategy(newScheme())}, ctx, got, stored()); err != nil {
			t.Fatalf("update the status: %v", err)
		}
		if diff := cmp.Diff(changed(update), got); diff != "" {
			t.Errorf("widget as it is stored (-want +got):\n%s", diff)
		}
	})
}

// TestResetFields: what a request cannot change, server-side apply must not own, through any version.
func TestResetFields(t *testing.T) {
	s := newStrategy(newScheme())
	for _, tc := range []struct {
		name     string
		strategy rest.ResetFieldsStrategy
		fields   []string
	}{
		{"main resource", s, []string{"status"}},
		{"status", statusStrategy{s}, []string{"spec", "metadata"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			want := fieldpath.NewSet()
			for _, field := range tc.fields {
				want.Insert(fieldpath.MakePathOrDie(field))
			}
			got := tc.strategy.GetResetFields()
			for _, v := range install.Versions {
				if set := got[fieldpath.APIVersion(v.GroupVersion.String())]; set == nil || !set.Equals(want) {
					t.Errorf("reset fields of %s: got %v, want %v", v.GroupVersion, set, want)
				}
			}
			if len(got) != len(install.Versions) {
				t.Errorf("reset fields: got %d versions, want %d", len(got), len(install.Versions))
			}
		})
	}
}

// TestScope pins what a client can rely on without reading the rules.
func TestScope(t *testing.T) {
	s := newStrategy(newScheme())
	if !s.NamespaceScoped() {
		t.Error("widgets: got cluster-scoped, want namespaced")
	}
	if s.AllowCreateOnUpdate(t.Context()) {
		t.Error("PUT of a widget that does not exist: got create, want not found")
	}
	if !s.AllowUnconditionalUpdate(t.Context()) {
		t.Error("PUT without a resourceVersion: got refused, want accepted")
	}
}

func TestColumns(t *testing.T) {
	for _, tc := range []struct {
		name   string
		object runtime.Object
		want   [][]any
	}{
		{"one", stored(), [][]any{{"w", "pendulum", "Standard", int64(2), int64(1), "<unknown>", int64(1)}}},
		{"list", &workshop.WidgetList{Items: []workshop.Widget{*stored(),
			{ObjectMeta: metav1.ObjectMeta{Name: "empty"}}}}, [][]any{
			{"w", "pendulum", "Standard", int64(2), int64(1), "<unknown>", int64(1)},
			{"empty", "", "", "<unset>", int64(0), "<unknown>", int64(0)},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			table, err := columns.ConvertToTable(t.Context(), tc.object, nil)
			if err != nil {
				t.Fatal(err)
			}
			var got [][]any
			for _, row := range table.Rows {
				got = append(got, row.Cells)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("cells (-want +got):\n%s", diff)
			}
			var narrow, wide []string
			for _, column := range table.ColumnDefinitions {
				if column.Priority == 0 {
					narrow = append(narrow, column.Name)
				} else {
					wide = append(wide, column.Name)
				}
			}
			if diff := cmp.Diff([]string{"Name", "Model", "Grade", "Desired", "Ready", "Age"}, narrow); diff != "" {
				t.Errorf("columns of kubectl get (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]string{"Parts"}, wide); diff != "" {
				t.Errorf("columns that kubectl get -o wide adds (-want +got):\n%s", diff)
			}
		})
	}
}
