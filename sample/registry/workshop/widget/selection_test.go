// SPDX-License-Identifier: Apache-2.0

package widget

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"example.com/extension-apiserver/sample/apis/workshop"
)

// TestAttributes: a widget is found by its labels and these fields, in lists and in watches.
func TestAttributes(t *testing.T) {
	gotLabels, gotFields, err := attributes(stored())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(labels.Set{"a": "b"}, gotLabels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	want := fields.Set{"metadata.name": "w", "metadata.namespace": "demo", "spec.model": "pendulum",
		"spec.grade": "Standard"}
	if diff := cmp.Diff(want, gotFields); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
	}
	if _, _, err := attributes(&workshop.Gadget{}); err == nil {
		t.Error("attributes of another kind: got no error")
	}
}

// TestSelectableFields: each version selects by its own names, which lead to what attributes returns; the names of
// other versions are refused, with those that this one has.
func TestSelectableFields(t *testing.T) {
	likeV1 := [2]string{"spec.model", "spec.grade"}
	names := map[string][2]string{"v1": likeV1, "v1beta1": likeV1, "v1alpha1": {"spec.design", "spec.quality"}}
	_, known, err := attributes(stored())
	if err != nil {
		t.Fatal(err)
	}
	for _, gv := range widgetVersions() {
		t.Run(gv.Version, func(t *testing.T) {
			model, grade := names[gv.Version][0], names[gv.Version][1]
			if model == "" {
				t.Fatal("not in the table of this test")
			}
			for name, want := range map[string]string{
				model: "pendulum", grade: "Standard", "metadata.name": "w", "metadata.namespace": "demo",
			} {
				label, value, err := newScheme().ConvertFieldLabel(gv.WithKind("Widget"), name, want)
				if err != nil || value != want || known[label] != want {
					t.Errorf("%s=%s: got %s=%s and error %v, want one of %v", name, want, label, value, err, known)
				}
			}
			refused := []string{"spec.replicas", "spec", "metadata.uid", ""}
			for _, other := range names {
				if other != names[gv.Version] {
					refused = append(refused, other[:]...)
				}
			}
			for _, name := range refused {
				_, _, err := newScheme().ConvertFieldLabel(gv.WithKind("Widget"), name, "x")
				// Names are listed in alphabetical order.
				want := fmt.Sprintf(`%q is not a known field selector: only "metadata.name", "metadata.namespace", %q, %q`, name, min(model, grade), max(model, grade))
				if err == nil || err.Error() != want {
					t.Errorf("got error %v, want %s", err, want)
				}
			}
		})
	}
}
