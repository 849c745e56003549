// SPDX-License-Identifier: Apache-2.0

package widget

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"example.com/extension-apiserver/sample/apis/workshop"
	"example.com/extension-apiserver/sample/apis/workshop/install"
)

// widgetVersions are the versions that serve the kind.
func widgetVersions() []schema.GroupVersion {
	var gvs []schema.GroupVersion
	for _, gv := range install.GroupVersions() {
		if newScheme().Recognizes(gv.WithKind("Widget")) {
			gvs = append(gvs, gv)
		}
	}
	return gvs
}

// written is the internal form of what a client writes who sets a field of the version, by its path in JSON.
func written(t *testing.T, gv schema.GroupVersion, path string, number int64) *workshop.Widget {
	t.Helper()
	scheme := newScheme()
	content := map[string]any{}
	if err := unstructured.SetNestedField(content, number, strings.Split(path, ".")...); err != nil {
		t.Fatal(err)
	}
	versioned, err := scheme.New(gv.WithKind("Widget"))
	if err != nil {
		t.Fatal(err)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(content, versioned,
		true); err != nil {
		t.Fatalf("set %s in %s: %v", path, gv, err)
	}
	widget := &workshop.Widget{}
	if err := scheme.Convert(versioned, widget, nil); err != nil {
		t.Fatal(err)
	}
	return widget
}

// TestFieldPaths: every version has its names in the list, and they are those of the fields that the rules look at.
func TestFieldPaths(t *testing.T) {
	if got, want := len(versions), len(widgetVersions()); got != want || got == 0 {
		t.Errorf("got %d versions in the list, want the %d that serve the kind", got, want)
	}
	for _, gv := range widgetVersions() {
		t.Run(gv.Version, func(t *testing.T) {
			paths, ok := versions[gv]
			if !ok {
				t.Fatal("not in the list")
			}
			want := &workshop.Widget{Spec: workshop.WidgetSpec{Replicas: new(int32(3))}}
			if diff := cmp.Diff(want, written(t, gv, paths.replicas.String(), 3)); diff != "" {
				t.Errorf("widget of a client that sets %s (-want +got):\n%s", paths.replicas, diff)
			}
			want = &workshop.Widget{Spec: workshop.WidgetSpec{MaxReplicas: new(int32(3))}}
			if diff := cmp.Diff(want, written(t, gv, paths.maxReplicas.String(), 3)); diff != "" {
				t.Errorf("widget of a client that sets %s (-want +got):\n%s", paths.maxReplicas, diff)
			}
		})
	}
}

// TestMaterialPath: a version whose parts have a material has a tag there, and none of the rules written by hand;
// another has the materials where the rule says.
func TestMaterialPath(t *testing.T) {
	for _, gv := range widgetVersions() {
		t.Run(gv.Version, func(t *testing.T) {
			versioned, err := newScheme().ConvertToVersion(stored(), gv)
			if err != nil {
				t.Fatal(err)
			}
			content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(versioned)
			if err != nil {
				t.Fatal(err)
			}
			parts, _, err := unstructured.NestedSlice(content, "spec", "parts")
			if err != nil || len(parts) != 1 {
				t.Fatalf("got the parts %v and error %v, want one", parts, err)
			}
			annotations, _, err := unstructured.NestedStringMap(content, "metadata", "annotations")
			if err != nil {
				t.Fatal(err)
			}
			places := map[string]bool{}
			if _, ok := parts[0].(map[string]any)["material"]; ok {
				places["<nil>"] = true
			}
			for key, text := range annotations {
				if strings.Contains(text, "steel") {
					places["metadata.annotations["+key+"]"] = true
				}
			}
			got := "<nil>"
			if material := versions[gv].material; material != nil {
				got = material("screw").String()
			}
			if len(places) != 1 || !places[got] {
				t.Errorf("got the path %s, want the one of %v", got, places)
			}
		})
	}
}

// TestRequestPaths: the names are those of the version of the request, and of the stored one where there is none to go
// by.
func TestRequestPaths(t *testing.T) {
	check := func(t *testing.T, ctx context.Context, want schema.GroupVersion) {
		t.Helper()
		got := requestPaths(ctx)
		for name, pair := range map[string][2]string{
			"replicas":    {versions[want].replicas.String(), got.replicas.String()},
			"maxReplicas": {versions[want].maxReplicas.String(), got.maxReplicas.String()},
			"material":    {fmt.Sprint(versions[want].material == nil), fmt.Sprint(got.material == nil)},
		} {
			if pair[0] != pair[1] {
				t.Errorf("path of %s: got %s, want %s of %s", name, pair[1], pair[0], want)
			}
		}
	}
	for _, gv := range widgetVersions() {
		t.Run(gv.Version, func(t *testing.T) { check(t, requestContext(t, gv, ""), gv) })
	}
	t.Run("unknown version", func(t *testing.T) {
		check(t, requestContext(t, schema.GroupVersion{Group: workshop.GroupName, Version: "v99"}, ""),
			install.StorageVersion())
	})
	t.Run("no request", func(t *testing.T) {
		check(t, genericapirequest.WithNamespace(t.Context(), "demo"), install.StorageVersion())
	})
}

// TestReplicasPaths: a client that sets replicas through the object owns, in each version, the field that the
// subresource scale looks for.
func TestReplicasPaths(t *testing.T) {
	got := replicasPaths()
	if len(got) != len(widgetVersions()) {
		t.Errorf("got %d versions, want %d", len(got), len(widgetVersions()))
	}
	for _, gv := range widgetVersions() {
		t.Run(gv.Version, func(t *testing.T) {
			versioned, err := newScheme().ConvertToVersion(
				&workshop.Widget{Spec: workshop.WidgetSpec{Replicas: new(int32(3))}}, gv)
			if err != nil {
				t.Fatal(err)
			}
			content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(versioned)
			if err != nil {
				t.Fatal(err)
			}
			owned := fieldpath.SetFromValue(value.NewValueInterface(content))
			if path := got[gv.String()]; !owned.Has(path) {
				t.Errorf("got the path %s, want one of those that the client owns:\n%s", path, owned)
			}
		})
	}
}

// TestScaling: the scale says what the widget says, and a change of it changes one field.
func TestScaling(t *testing.T) {
	for name, replicas := range map[string]*int32{"set": new(int32(2)), "unset": nil} {
		t.Run(name, func(t *testing.T) {
			got := scaling.Scale(changed(func(w *workshop.Widget) { w.Spec.Replicas = replicas }))
			want := int32(0)
			if replicas != nil {
				want = *replicas
			}
			if got.Spec.Replicas != want || got.Status.Replicas != 2 || got.Status.Selector != "a=b" {
				t.Errorf("got %+v, want %d wished, 2 there, selected by a=b", got, want)
			}
		})
	}
	got := stored()
	scaling.SetReplicas(got, 4)
	if diff := cmp.Diff(changed(func(w *workshop.Widget) { w.Spec.Replicas = new(int32(4)) }), got); diff != "" {
		t.Errorf("widget that is scaled to 4 (-want +got):\n%s", diff)
	}
}
