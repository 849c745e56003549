// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

var gadgetCase = kindCase{
	resource: resource("gadgets"),
	sample:   "gadget.yaml",
	change:   `{"spec":{"precision":4}}`,
	field:    []string{"spec", "precision"},
	value:    int64(4),
}

func init() { kindCases = append(kindCases, gadgetCase) }

// TestGadgetInvalid checks the error of each validation rule, by field.
func TestGadgetInvalid(t *testing.T) {
	client := gadgetCase.client(t, shared.Admin(t), "")
	for _, tc := range []struct {
		name   string
		object string
		spec   map[string]any
		fields []string
	}{
		{"purpose missing", "g", map[string]any{}, []string{"spec.purpose"}},
		{"purpose long", "g", map[string]any{"purpose": strings.Repeat("x", 257)}, []string{"spec.purpose"}},
		{"precision high", "g", map[string]any{"purpose": "p", "precision": int64(7)}, []string{"spec.precision"}},
		{"precision negative", "g", map[string]any{"purpose": "p", "precision": int64(-1)}, []string{"spec.precision"}},
		{"name no DNS subdomain", "G_", map[string]any{"purpose": "p"}, []string{"metadata.name"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			obj := gadgetCase.object(t, tc.object)
			obj.Object["spec"] = tc.spec
			_, err := client.Create(t.Context(), obj, metav1.CreateOptions{})
			if diff := cmp.Diff(tc.fields, invalidFields(t, err)); diff != "" {
				t.Errorf("fields with errors (-want +got):\n%s\n%v", diff, err)
			}
		})
	}
}

// TestGadgetStrictFields checks that strict field validation rejects an unknown field, and that
// nothing is stored.
func TestGadgetStrictFields(t *testing.T) {
	client := gadgetCase.client(t, shared.Admin(t), "")
	obj := gadgetCase.object(t, uniqueName(t))
	if err := unstructured.SetNestedField(obj.Object, "x", "spec", "colour"); err != nil {
		t.Fatal(err)
	}
	_, err := client.Create(t.Context(), obj, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	if !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), `unknown field "spec.colour"`) {
		t.Errorf("create with an unknown field: %v, want BadRequest that names spec.colour", err)
	}
	if _, err := client.Get(t.Context(), obj.GetName(), metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("get after a refused create: %v, want NotFound", err)
	}
}
