// SPDX-License-Identifier: Apache-2.0

package widget

import (
	"fmt"
	"testing"
)

// TestSelectableFields checks that each version selects by its own field names, which map to
// those of attributes, and that it rejects the names of other versions with an error that lists
// its own.
func TestSelectableFields(t *testing.T) {
	likeV1 := [2]string{"spec.model", "spec.grade"}
	names := map[string][2]string{"v1": likeV1, "v1beta1": likeV1, "v1alpha1": {"spec.design", "spec.quality"}}
	known := attributes(stored())
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
