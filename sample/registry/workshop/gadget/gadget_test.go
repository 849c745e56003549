// SPDX-License-Identifier: Apache-2.0

package gadget

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"example.com/extension-apiserver/pkg/apitesting"
	"example.com/extension-apiserver/sample/apis/workshop/install"
	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
	validation "example.com/extension-apiserver/sample/validation/workshop"
)

// eachVersion runs the test with the validation of each version that defines the kind.
func eachVersion(t *testing.T, test func(*testing.T, apitesting.KindRules)) {
	t.Helper()
	for version, rules := range apitesting.Rules(t, Kind.NewStorage, install.AddToScheme, validation.AddToScheme) {
		t.Run(version, func(t *testing.T) { test(t, rules) })
	}
}

// stored returns a valid gadget as it is stored: defaulted, with the metadata that the server
// sets.
func stored() *v1.Gadget {
	return &v1.Gadget{
		ObjectMeta: metav1.ObjectMeta{Name: "g", UID: "7", ResourceVersion: "5", Generation: 3},
		Spec:       v1.GadgetSpec{Purpose: "measures", Precision: new(int32(2))},
	}
}

// changed returns a stored gadget with a change.
func changed(change func(*v1.Gadget)) *v1.Gadget {
	g := stored()
	change(g)
	return g
}

// problems lists errors as "field: type".
func problems(errs field.ErrorList) []string {
	var out []string
	for _, err := range errs {
		out = append(out, fmt.Sprintf("%s: %s", err.Field, err.Type))
	}
	return out
}

// TestValidate checks every validation rule at its limits, for a new gadget and for the same
// change to a stored one.
func TestValidate(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*v1.Gadget)
		want   []string
	}{
		{"valid", func(*v1.Gadget) {}, nil},
		{"name", func(g *v1.Gadget) { g.Name = "G_" }, []string{"metadata.name: Invalid value"}},
		{"purpose missing", func(g *v1.Gadget) { g.Spec.Purpose = "" }, []string{"spec.purpose: Required value"}},
		{"purpose longest", func(g *v1.Gadget) { g.Spec.Purpose = strings.Repeat("x", 256) }, nil},
		{"purpose too long", func(g *v1.Gadget) { g.Spec.Purpose = strings.Repeat("x", 257) },
			[]string{"spec.purpose: Too long"}},
		{"precision lowest", func(g *v1.Gadget) { g.Spec.Precision = new(int32(0)) }, nil},
		{"precision too low", func(g *v1.Gadget) { g.Spec.Precision = new(int32(-1)) },
			[]string{"spec.precision: Invalid value"}},
		{"precision highest", func(g *v1.Gadget) { g.Spec.Precision = new(int32(6)) }, nil},
		{"precision too high", func(g *v1.Gadget) { g.Spec.Precision = new(int32(7)) },
			[]string{"spec.precision: Invalid value"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			eachVersion(t, func(t *testing.T, rules apitesting.KindRules) {
				if diff := cmp.Diff(tc.want, problems(rules.Create(changed(tc.change)))); diff != "" {
					t.Errorf("errors on create (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(tc.want, problems(rules.Update(changed(tc.change),
					stored()))); diff != "" {
					t.Errorf("errors on update (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestUpdateIgnoresInvalidUnchangedFields checks that an update ignores an unchanged field that was
// stored before its validation rule existed.
func TestUpdateIgnoresInvalidUnchangedFields(t *testing.T) {
	eachVersion(t, func(t *testing.T, rules apitesting.KindRules) {
		old := changed(func(g *v1.Gadget) { g.Spec.Precision = new(int32(9)) })
		updated := old.DeepCopy()
		updated.Spec.Purpose = "weighs"
		if got := problems(rules.Update(updated, old)); got != nil {
			t.Errorf("change of another field: got %v, want no error", got)
		}
	})
}
