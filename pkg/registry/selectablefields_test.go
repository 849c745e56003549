// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestSelectableFields: a field is selectable by its name in the version, for its kind only. The
// error for any other field lists the selectable fields.
func TestSelectableFields(t *testing.T) {
	scheme := runtime.NewScheme()
	thing := schema.GroupVersionKind{Group: "things.example.org", Version: "v99", Kind: "Thing"}
	if err := AddSelectableFields(scheme, thing, map[string]string{"spec.size": "spec.dimensions.size",
		"spec.color": "spec.color"}); err != nil {
		t.Fatal(err)
	}
	const refused = ` is not a known field selector: only "metadata.name", "metadata.namespace", "spec.color", "spec.size"`
	other := thing
	other.Kind = "Other"
	for _, tc := range []struct {
		kind             schema.GroupVersionKind
		name, want, fail string
	}{
		{thing, "spec.size", "spec.dimensions.size", ""},
		{thing, "spec.color", "spec.color", ""},
		{thing, "metadata.name", "metadata.name", ""},
		{thing, "metadata.namespace", "metadata.namespace", ""},
		// The internal name is not a name of the version.
		{thing, "spec.dimensions.size", "", `"spec.dimensions.size"` + refused},
		{thing, "spec.weight", "", `"spec.weight"` + refused},
		{thing, "", "", `""` + refused},
		{other, "metadata.name", "metadata.name", ""},
		{other, "spec.size", "",
			`"spec.size" is not a known field selector: only "metadata.name", "metadata.namespace"`},
	} {
		t.Run(tc.kind.Kind+" by "+tc.name, func(t *testing.T) {
			label, value, err := scheme.ConvertFieldLabel(tc.kind, tc.name, "a=b")
			if tc.fail != "" {
				if err == nil || err.Error() != tc.fail || label != "" {
					t.Errorf("got %q and error %v, want the error %s", label, err, tc.fail)
				}
				return
			}
			if err != nil || label != tc.want || value != "a=b" {
				t.Errorf("got %s=%s and error %v, want %s=a=b", label, value, err, tc.want)
			}
		})
	}
}
