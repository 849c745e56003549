// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"example.com/extension-apiserver/sample/apis/workshop/v1alpha1"
	"example.com/extension-apiserver/sample/install"
)

// A spec with every field, as v1 and v1beta1 have it, and as v1alpha1 has it, which is shaped unlike them.
const (
	widgetV1       = `{"model":"pendulum","grade":"Standard","replicas":2,"maxReplicas":5,"parts":[{"name":"screw","quantity":12},{"name":"frame","quantity":1,"material":"oak"}]}`
	widgetV1alpha1 = `{"design":"pendulum","quality":"Standard","scale":{"desired":2,"limit":5},"parts":[{"name":"screw","count":12},{"name":"frame","count":1}]}`
)

// eachWidgetVersion runs the test with the sample of each version.
func eachWidgetVersion(t *testing.T, test func(*testing.T, kindCase)) {
	t.Helper()
	for _, gv := range install.GroupVersions() {
		t.Run(gv.Version, func(t *testing.T) { test(t, inVersion(gv.Version)) })
	}
}

// inVersion is widgetCase in another version.
func inVersion(version string) kindCase {
	k := widgetCase
	k.resource.Version, k.spec = version, widgetV1
	if version == v1alpha1.SchemeGroupVersion.Version {
		k.spec = widgetV1alpha1
	}
	return k
}

// renamed translates a field of v1 to how the version calls it.
func renamed(version, field string) string {
	if version != v1alpha1.SchemeGroupVersion.Version {
		return field
	}
	return strings.NewReplacer("spec.model", "spec.design", "spec.grade", "spec.quality", "spec.replicas", "spec.scale.desired",
		"spec.maxReplicas", "spec.scale.limit", "].quantity", "].count").Replace(field)
}

// TestWidgetVersions: what is written in one version is read in every other, and nothing is lost on the way.
func TestWidgetVersions(t *testing.T) {
	namespace, config := newNamespace(t, shared), adminConfig(t, shared)
	eachWidgetVersion(t, func(t *testing.T, writer kindCase) {
		name := "by-" + writer.resource.Version
		if _, err := writer.client(t, config, namespace).Create(t.Context(), writer.object(t, name), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		for _, gv := range install.GroupVersions() {
			reader := inVersion(gv.Version)
			got, err := reader.client(t, config, namespace).Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			want := reader.object(t, name)
			materials := got.GetAnnotations()[v1alpha1.MaterialsAnnotation]
			if writer.spec == widgetV1alpha1 {
				// It has no field for the material, so there is none.
				clearMaterials(t, want)
			}
			if diff := cmp.Diff(want.Object["spec"], got.Object["spec"]); diff != "" || got.GetAPIVersion() != gv.String() {
				t.Errorf("read as %s, want %s (-want +got):\n%s", got.GetAPIVersion(), gv, diff)
			}
			if (materials != "") != (reader.spec == widgetV1alpha1 && writer.spec == widgetV1) {
				t.Errorf("annotation with the materials read as %s: %q, want it only where no field holds them", gv, materials)
			}
		}
	})
}

func clearMaterials(t *testing.T, obj *unstructured.Unstructured) {
	t.Helper()
	parts, _, err := unstructured.NestedSlice(obj.Object, "spec", "parts")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range parts {
		delete(p.(map[string]any), "material")
	}
	if err := unstructured.SetNestedSlice(obj.Object, parts, "spec", "parts"); err != nil {
		t.Fatal(err)
	}
}

// TestWidgetOldClient: a client of v1alpha1 that reads, changes and writes back keeps what its version cannot say; what it says
// itself is kept too.
func TestWidgetOldClient(t *testing.T) {
	namespace, config := newNamespace(t, shared), adminConfig(t, shared)
	current := inVersion("v1").client(t, config, namespace)
	if _, err := current.Create(t.Context(), inVersion("v1").object(t, "w"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	old := inVersion("v1alpha1").client(t, config, namespace)
	obj, err := old.Get(t.Context(), "w", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range []struct {
		value any
		path  []string
	}{{int64(4), []string{"spec", "scale", "desired"}}, {"for the hall", []string{"spec", "remark"}}} {
		if err := unstructured.SetNestedField(obj.Object, field.value, field.path...); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := old.Update(t.Context(), obj, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	got, err := current.Get(t.Context(), "w", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := inVersion("v1").object(t, "w")
	if err := unstructured.SetNestedField(want.Object, int64(4), "spec", "replicas"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want.Object["spec"], got.Object["spec"]); diff != "" {
		t.Errorf("widget after the old client (-want +got):\n%s", diff)
	}
	if remark := got.GetAnnotations()[v1alpha1.RemarkAnnotation]; remark != "for the hall" {
		t.Errorf("remark: %q, want that of the old client", remark)
	}
}

// TestWidgetBadMaterials: materials that cannot be read are refused, however they come, and what is stored stays.
func TestWidgetBadMaterials(t *testing.T) {
	k := inVersion("v1alpha1")
	client := k.client(t, adminConfig(t, shared), newNamespace(t, shared))
	bad := k.object(t, "bad")
	bad.SetAnnotations(map[string]string{v1alpha1.MaterialsAnnotation: "steel"})
	refused := func(how string, err error) {
		t.Helper()
		if diff := cmp.Diff([]string{"metadata.annotations[" + v1alpha1.MaterialsAnnotation + "]"}, invalidFields(t, err)); diff != "" {
			t.Errorf("%s: fields with errors (-want +got):\n%s", how, diff)
		}
	}
	_, err := client.Create(t.Context(), bad, metav1.CreateOptions{})
	refused("create", err)
	good, err := client.Create(t.Context(), k.object(t, "w"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	update := good.DeepCopy()
	update.SetAnnotations(bad.GetAnnotations())
	_, err = client.Update(t.Context(), update, metav1.UpdateOptions{})
	refused("update", err)
	patch := `{"metadata":{"annotations":{"` + v1alpha1.MaterialsAnnotation + `":"steel"}}}`
	applied := `{"apiVersion":"` + k.resource.GroupVersion().String() + `","kind":"Widget",` + patch[1:]
	for kind, body := range map[types.PatchType]string{types.MergePatchType: patch, types.StrategicMergePatchType: patch, types.ApplyPatchType: applied} {
		_, err := client.Patch(t.Context(), "w", kind, []byte(body), metav1.PatchOptions{FieldManager: "test"})
		refused(string(kind), err)
	}
	after, err := client.Get(t.Context(), "w", metav1.GetOptions{})
	if err != nil || after.GetResourceVersion() != good.GetResourceVersion() {
		t.Errorf("after bad writes: resourceVersion %s, %v; want %s", after.GetResourceVersion(), err, good.GetResourceVersion())
	}
}
