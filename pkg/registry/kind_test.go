// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"example.com/extension-apiserver/sample/apis/workshop/install"
	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
	validation "example.com/extension-apiserver/sample/validation/workshop"
)

// widgets is a Kind with a selectable field, paths, and the subresources status and scale.
var widgets = Kind[*v1.Widget]{
	SelectableFields: map[string]func(*v1.Widget) string{
		"spec.model": func(w *v1.Widget) string { return w.Spec.Model },
	},
	Paths: map[string]map[string]string{"v1alpha1": {"spec.model": "spec.design", "spec.replicas": "spec.scale.desired"}},
	Subresources: map[string]Subresource[*v1.Widget]{
		"status": Status[*v1.Widget]{},
		"scale":  Scale[*v1.Widget]{},
	},
}

func sampleScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(install.AddToScheme(scheme))
	utilruntime.Must(validation.AddToScheme(scheme))
	return scheme
}

func mustDescribe[T Object](t *testing.T, kind Kind[T]) *description[T] {
	t.Helper()
	d, err := kind.describe(sampleScheme())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// inVersion returns the context of a request in a version.
func inVersion(t *testing.T, version string) context.Context {
	t.Helper()
	ctx := genericapirequest.WithNamespace(t.Context(), "demo")
	return genericapirequest.WithRequestInfo(ctx, &genericapirequest.RequestInfo{
		IsResourceRequest: true, APIGroup: v1.SchemeGroupVersion.Group, APIVersion: version, Resource: "widgets",
	})
}

// storedWidget returns a valid widget in the form in which the store has it.
func storedWidget(change func(*v1.Widget)) *v1.Widget {
	w := &v1.Widget{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "demo", Name: "w", UID: "7", ResourceVersion: "5", Generation: 3,
			Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"a": "b"},
			Finalizers:      []string{"example.com/f"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "8"}},
		},
		Spec:   v1.WidgetSpec{Model: "pendulum", Grade: v1.WidgetGradeStandard, Replicas: new(int32(2))},
		Status: v1.WidgetStatus{ObservedGeneration: 2, Replicas: 2, ReadyReplicas: 1, Selector: "a=b"},
	}
	if change != nil {
		change(w)
	}
	return w
}

// TestKindCreate: a client sets neither the status nor the generation of a new object.
func TestKindCreate(t *testing.T) {
	got := storedWidget(func(w *v1.Widget) { w.Generation = 99 })
	if err := rest.BeforeCreate(newRules(mustDescribe(t, widgets)), inVersion(t, "v1"), got); err != nil {
		t.Fatal(err)
	}
	want := storedWidget(func(w *v1.Widget) { w.Status, w.Generation = v1.WidgetStatus{}, 1 })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("stored object (-want +got):\n%s", diff)
	}
}

// TestKindUpdate: the main resource does not change the status, and the generation counts other
// changes outside metadata.
func TestKindUpdate(t *testing.T) {
	for _, tc := range []struct {
		name       string
		change     func(*v1.Widget)
		generation int64
	}{
		{"nothing", func(*v1.Widget) {}, 3},
		{"label", func(w *v1.Widget) { w.Labels = map[string]string{"x": "y"} }, 3},
		{"replicas", func(w *v1.Widget) { w.Spec.Replicas = new(int32(4)) }, 4},
		{"generation", func(w *v1.Widget) { w.Generation = 99 }, 3},
		{"status", func(w *v1.Widget) { w.Status.ReadyReplicas = 0 }, 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, old := storedWidget(tc.change), storedWidget(nil)
			if err := rest.BeforeUpdate(newRules(mustDescribe(t, widgets)), inVersion(t, "v1"), got, old); err != nil {
				t.Fatal(err)
			}
			want := storedWidget(tc.change)
			want.Status, want.Generation = old.Status, tc.generation
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("stored object (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(storedWidget(nil), old); diff != "" {
				t.Errorf("old object, which must not change (-want +got):\n%s", diff)
			}
		})
	}
}

// TestKindWithoutStatus: without the subresource status, the field Status is updated like any
// other field.
func TestKindWithoutStatus(t *testing.T) {
	rules := newRules(mustDescribe(t, Kind[*v1.Widget]{}))
	got := storedWidget(func(w *v1.Widget) { w.Status.ReadyReplicas = 0 })
	if err := rest.BeforeUpdate(rules, inVersion(t, "v1"), got, storedWidget(nil)); err != nil {
		t.Fatal(err)
	}
	want := storedWidget(func(w *v1.Widget) { w.Status.ReadyReplicas, w.Generation = 0, 4 })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("stored object (-want +got):\n%s", diff)
	}
	if fields := rules.GetResetFields(); len(fields) > 0 {
		t.Errorf("got the reset fields %v, want none", fields)
	}
}

// TestKindStatus: the subresource status changes only the status.
func TestKindStatus(t *testing.T) {
	d := mustDescribe(t, widgets)
	status := func(w *v1.Widget) { w.Status = v1.WidgetStatus{Replicas: 4, ReadyReplicas: 4} }
	got := storedWidget(func(w *v1.Widget) {
		status(w)
		w.Spec = v1.WidgetSpec{Model: "other"}
		w.Generation = 99
		w.Labels, w.Annotations, w.Finalizers, w.OwnerReferences = nil, nil, nil, nil
	})
	rules := statusRules[*v1.Widget]{newRules(d), Status[*v1.Widget]{}}
	if err := rest.BeforeUpdate(rules, inVersion(t, "v1"), got, storedWidget(nil)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(storedWidget(status), got); diff != "" {
		t.Errorf("stored object (-want +got):\n%s", diff)
	}
	for name, tc := range map[string]struct {
		strategy rest.ResetFieldsStrategy
		fields   []string
	}{
		"main resource": {newRules(d), []string{"status"}},
		"status":        {rules, []string{"spec", "metadata"}},
	} {
		want := fieldpath.NewSet()
		for _, field := range tc.fields {
			want.Insert(fieldpath.MakePathOrDie(field))
		}
		got := tc.strategy.GetResetFields()
		for _, gv := range install.GroupVersions() {
			if set := got[fieldpath.APIVersion(gv.String())]; set == nil || !set.Equals(want) {
				t.Errorf("reset fields of %s in %s: got %v, want %v", name, gv, set, want)
			}
		}
	}
}

// TestKindValidate: Validate runs in addition to the generated validation. Its errors have the
// paths of the request's version, and errors that the stored object also has are ignored.
func TestKindValidate(t *testing.T) {
	kind := widgets
	kind.Validate = func(ctx context.Context, obj, old *v1.Widget) field.ErrorList {
		if obj.Spec.Replicas == nil || *obj.Spec.Replicas <= 5 {
			return nil
		}
		action := "create"
		if old != nil {
			action = "update"
		}
		return field.ErrorList{field.Invalid(field.NewPath("spec", "replicas"), *obj.Spec.Replicas,
			fmt.Sprintf("%s: at most 5 of %s", action, FieldPath(ctx, "spec.model")))}
	}
	rules := newRules(mustDescribe(t, kind))
	many := func(n int32) func(*v1.Widget) { return func(w *v1.Widget) { w.Spec.Replicas = new(n) } }
	for _, tc := range []struct {
		name, version string
		old, change   func(*v1.Widget)
		want          []string
	}{
		{"update", "v1", nil, many(6), []string{"spec.replicas: Invalid value: 6: update: at most 5 of spec.model"}},
		{"update in another version", "v1alpha1", nil, many(6),
			[]string{"spec.scale.desired: Invalid value: 6: update: at most 5 of spec.design"}},
		{"other field", "v1", many(6), func(w *v1.Widget) { many(6)(w); w.Labels = nil }, nil},
		{"more", "v1", many(6), many(7), []string{"spec.replicas: Invalid value: 7: update: at most 5 of spec.model"}},
		{"valid again", "v1", many(6), many(5), nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			for _, err := range rules.ValidateUpdate(inVersion(t, tc.version), storedWidget(tc.change),
				storedWidget(tc.old)) {
				got = append(got, err.Error())
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
		})
	}
	created := storedWidget(func(w *v1.Widget) { many(6)(w); w.Name, w.ResourceVersion = "W_", "" })
	var got []string
	for _, err := range rules.Validate(inVersion(t, "v1alpha1"), created) {
		got = append(got, err.Field)
	}
	slices.Sort(got)
	if diff := cmp.Diff([]string{"metadata.name", "spec.scale.desired"}, got); diff != "" {
		t.Errorf("fields of the errors on create (-want +got):\n%s", diff)
	}
}

// TestKindSelectablePanic: an object is not stored if the function of a selectable field panics
// for it. If such an object is already stored, the panic does not stop the server.
func TestKindSelectablePanic(t *testing.T) {
	kind := widgets
	kind.SelectableFields = map[string]func(*v1.Widget) string{
		"spec.model": func(*v1.Widget) string { panic("no model") },
	}
	d := mustDescribe(t, kind)
	_, selected, err := d.attributes(storedWidget(nil))
	if value, ok := selected["spec.model"]; err != nil || !ok || value != "" {
		t.Errorf("attributes: got %v, %v, want no error and an empty value", selected, err)
	}
	defer func() {
		if reason := recover(); reason != "no model" {
			t.Errorf("validation: got the panic %v, want that of the function", reason)
		}
	}()
	newRules(d).Validate(t.Context(), storedWidget(nil))
}

// TestKindSelectableFields: clients select by the field names of the version they use.
func TestKindSelectableFields(t *testing.T) {
	d := mustDescribe(t, widgets)
	utilruntime.Must(d.addSelectableFields())
	gotLabels, gotFields, err := d.attributes(storedWidget(nil))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(labels.Set{"a": "b"}, gotLabels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	want := fields.Set{"metadata.name": "w", "metadata.namespace": "demo", "spec.model": "pendulum"}
	if diff := cmp.Diff(want, gotFields); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
	}
	if _, _, err := d.attributes(&v1.Gadget{}); err == nil {
		t.Error("attributes of another kind: got no error")
	}
	for version, name := range map[string]string{"v1": "spec.model", "v1beta1": "spec.model", "v1alpha1": "spec.design"} {
		gvk := schema.GroupVersionKind{Group: d.gvk.Group, Version: version, Kind: "Widget"}
		if label, _, err := d.scheme.ConvertFieldLabel(gvk, name, "x"); err != nil || label != "spec.model" {
			t.Errorf("select by %s in %s: got %q and error %v, want spec.model", name, version, label, err)
		}
	}
}

// TestKindTable: the columns are between the name and the age, and columns for -o wide follow the
// age.
func TestKindTable(t *testing.T) {
	kind := Kind[*v1.Widget]{Columns: []Column[*v1.Widget]{
		{Name: "Wide", Priority: 1, Value: func(*v1.Widget) any { return true }},
		{Name: "Grade", Value: func(w *v1.Widget) any { return w.Spec.Grade }},
		{Name: "Desired", Type: "integer", Value: func(w *v1.Widget) any { return w.Spec.Replicas }},
		{Name: "Limit", Type: "integer", Value: func(w *v1.Widget) any { return w.Spec.MaxReplicas }},
		{Name: "Parts", Type: "integer", Value: func(w *v1.Widget) any { return len(w.Spec.Parts) }},
		{Name: "Nothing", Value: func(*v1.Widget) any { return nil }},
		{Name: "Created", Type: "date", Value: func(w *v1.Widget) any { return &w.CreationTimestamp }},
	}}
	object := storedWidget(func(w *v1.Widget) {
		w.CreationTimestamp = metav1.NewTime(time.Now().Add(-50 * time.Hour))
	})
	table, err := mustDescribe(t, kind).table().ConvertToTable(t.Context(), object, nil)
	if err != nil {
		t.Fatal(err)
	}
	var columns []string
	for _, c := range table.ColumnDefinitions {
		columns = append(columns, fmt.Sprintf("%s %s %d", c.Name, c.Type, c.Priority))
	}
	if diff := cmp.Diff([]string{"Name string 0", "Grade string 0", "Desired integer 0", "Limit integer 0",
		"Parts integer 0", "Nothing string 0", "Created date 0", "Age string 0", "Wide string 1"}, columns); diff != "" {
		t.Errorf("columns (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]any{"w", "Standard", int64(2), nil, int64(0), nil, "2d2h", "2d2h", true},
		table.Rows[0].Cells); diff != "" {
		t.Errorf("cells (-want +got):\n%s", diff)
	}
}

// TestKindScale: the scale shows the fields of the object, and scaling changes only the replicas.
func TestKindScale(t *testing.T) {
	storage, err := widgets.NewStorage(sampleScheme(), Unconnected{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := storage["widgets/scale"].New().(*autoscalingv1.Scale); !ok {
		t.Errorf("got %T, want a Scale", storage["widgets/scale"].New())
	}
	scaling := Scale[*v1.Widget]{}.scaling(mustDescribe(t, widgets))
	for _, replicas := range []*int32{new(int32(2)), nil} {
		got := scaling.Scale(storedWidget(func(w *v1.Widget) { w.Spec.Replicas = replicas }))
		want := int32(0)
		if replicas != nil {
			want = *replicas
		}
		if got.Spec.Replicas != want || got.Status.Replicas != 2 || got.Status.Selector != "a=b" {
			t.Errorf("got %+v, want %d wished, 2 there, selected by a=b", got, want)
		}
		obj := storedWidget(func(w *v1.Widget) { w.Spec.Replicas = replicas })
		scaling.SetReplicas(obj, 4)
		if diff := cmp.Diff(storedWidget(func(w *v1.Widget) { w.Spec.Replicas = new(int32(4)) }), obj); diff != "" {
			t.Errorf("object that is scaled to 4 (-want +got):\n%s", diff)
		}
	}
	for gv, want := range map[string]string{"v1": ".spec.replicas", "v1beta1": ".spec.replicas",
		"v1alpha1": ".spec.scale.desired"} {
		if got := scaling.ReplicasPaths[v1.SchemeGroupVersion.Group+"/"+gv].String(); got != want {
			t.Errorf("replicas of %s: got %s, want %s", gv, got, want)
		}
	}
}

// TestKindDefaults: the zero value is a namespaced resource named after the plural of its kind.
func TestKindDefaults(t *testing.T) {
	storage, err := Kind[*v1.Widget]{}.NewStorage(sampleScheme(), Unconnected{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	store, ok := storage["widgets"].(genericregistry.GenericStore)
	if !ok || len(storage) != 1 {
		t.Fatalf("got %v, want widgets", storage)
	}
	s := store.GetUpdateStrategy()
	if !s.NamespaceScoped() || s.AllowCreateOnUpdate(t.Context()) || !s.AllowUnconditionalUpdate(t.Context()) {
		t.Errorf("got namespaced %t, creates on update %t, updates without a version %t; want true, false, true",
			s.NamespaceScoped(), s.AllowCreateOnUpdate(t.Context()), s.AllowUnconditionalUpdate(t.Context()))
	}
}

// TestKindContradictions: one error contains all contradictions.
func TestKindContradictions(t *testing.T) {
	kind := Kind[*v1.Gadget]{
		Resource:         "Gad/gets",
		Columns:          []Column[*v1.Gadget]{{}, {Name: "A"}, {Name: "B", Type: "text", Value: func(*v1.Gadget) any { return 1 }}},
		SelectableFields: map[string]func(*v1.Gadget) string{"spec.nothing": func(*v1.Gadget) string { return "" }, "spec": nil},
		Paths:            map[string]map[string]string{"v9": {}, "v1": {}},
		Subresources: map[string]Subresource[*v1.Gadget]{
			"scale": Scale[*v1.Gadget]{}, "state": Status[*v1.Gadget]{}, "status": &Status[*v1.Gadget]{}, "console": Stream[*v1.Gadget](nil), "nil": nil,
			"raw": CustomSubresource[*v1.Gadget](nil),
		},
	}
	_, err := kind.NewStorage(sampleScheme(), Unconnected{}, nil)
	if err == nil {
		t.Fatal("got no error")
	}
	for _, want := range []string{
		`kind Gadget: resource "Gad/gets": `, "column 1: it has no name", "column A: there is no function Value",
		`column B: the type is "text", expected one of`, "selectable field spec.nothing: v1 has no such field",
		"selectable field spec: there is no function", "paths of v9: expected another version", "paths of v1: expected",
		"subresource scale: v1 has no int32 spec.replicas", "subresource scale: v1 has no int32 status.replicas",
		"subresource state: it is a Status, whose name is status", "subresource status: v1 has no field Status",
		"subresource console: there is no function", "subresource nil: it is nil", "subresource raw: there is no function",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to contain %q", err, want)
		}
	}
	other := widgets
	other.Paths = map[string]map[string]string{"v1alpha1": {"spec.nothing": "spec.design", "spec.model": "spec.nothing"}}
	_, err = other.NewStorage(sampleScheme(), Unconnected{}, nil)
	for _, want := range []string{"paths of v1alpha1: v1 has no field spec.nothing",
		"paths of v1alpha1: it has no field spec.nothing", "subresource scale: v1alpha1 has no spec.replicas; Paths"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to contain %q", err, want)
		}
	}
}
