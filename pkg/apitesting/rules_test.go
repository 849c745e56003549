// SPDX-License-Identifier: Apache-2.0

package apitesting_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"example.com/extension-apiserver/pkg/apitesting"
	"example.com/extension-apiserver/sample/apis/workshop/install"
	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
	"example.com/extension-apiserver/sample/registry/workshop/widget"
	validation "example.com/extension-apiserver/sample/validation/workshop"
)

// TestRulesDefaults checks that the rules of each version validate objects with its defaults, and
// leave the objects of the caller unchanged.
func TestRulesDefaults(t *testing.T) {
	newWidget := func(model string) *v1.Widget {
		return &v1.Widget{ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: "w", ResourceVersion: "5"},
			Spec: v1.WidgetSpec{Model: model}}
	}
	kind := widget.Kind
	kind.Validate = func(_ context.Context, obj, old *v1.Widget) field.ErrorList {
		if old != nil && !cmp.Equal(old.Spec.Replicas, obj.Spec.Replicas) {
			return field.ErrorList{field.Forbidden(field.NewPath("spec", "replicas"), "it is immutable")}
		}
		return nil
	}
	defaulted := newWidget("pendulum")
	v1.SetObjectDefaults_Widget(defaulted)
	if cmp.Equal(newWidget("pendulum"), defaulted) {
		t.Fatal("a widget has no defaults")
	}
	for version, rules := range apitesting.Rules(t, kind.NewStorage, install.AddToScheme, validation.AddToScheme) {
		for name, validate := range map[string]func(obj *v1.Widget) field.ErrorList{
			"create": func(obj *v1.Widget) field.ErrorList { return rules.Create(obj) },
			"update": func(obj *v1.Widget) field.ErrorList { return rules.Update(obj, defaulted) },
			"update of an object without defaults": func(obj *v1.Widget) field.ErrorList {
				return rules.Update(defaulted, obj)
			},
			"status": func(obj *v1.Widget) field.ErrorList { return rules.UpdateStatus(obj, defaulted) },
		} {
			t.Run(fmt.Sprintf("%s of %s", name, version), func(t *testing.T) {
				obj := newWidget("pendulum")
				if errs := validate(obj); len(errs) > 0 {
					t.Errorf("without optional fields: %v", errs)
				}
				if diff := cmp.Diff(newWidget("pendulum"), obj); diff != "" {
					t.Errorf("the object changed (-want +got):\n%s", diff)
				}
			})
		}
		if errs := rules.Create(newWidget("")); len(errs) != 1 || errs[0].Type != field.ErrorTypeRequired {
			t.Errorf("%s: without a required field: got %v, want one error", version, errs)
		}
	}
}
