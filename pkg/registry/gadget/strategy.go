// SPDX-License-Identifier: Apache-2.0

package gadget

import (
	"context"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/operation"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage/names"

	"example.com/extension-apiserver/pkg/apis/workshop"
)

type strategy struct {
	*runtime.Scheme
	names.NameGenerator
}

func newStrategy(scheme *runtime.Scheme) strategy {
	return strategy{scheme, names.SimpleNameGenerator}
}

func (strategy) NamespaceScoped() bool           { return false }
func (strategy) AllowCreateOnUpdate() bool       { return false }
func (strategy) AllowUnconditionalUpdate() bool  { return true }
func (strategy) Canonicalize(obj runtime.Object) {}

func (strategy) PrepareForCreate(_ context.Context, obj runtime.Object) {
	obj.(*workshop.Gadget).Generation = 1
}

func (strategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	gadget, oldGadget := obj.(*workshop.Gadget), old.(*workshop.Gadget)
	if !apiequality.Semantic.DeepEqual(gadget.Spec, oldGadget.Spec) {
		gadget.Generation = oldGadget.Generation + 1
	}
}

func (s strategy) Validate(ctx context.Context, obj runtime.Object) field.ErrorList {
	errs := apivalidation.ValidateObjectMeta(&obj.(*workshop.Gadget).ObjectMeta, false, apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
	return rest.ValidateDeclarativelyWithMigrationChecks(ctx, s.Scheme, obj, nil, errs, operation.Create, rest.WithDeclarativeEnforcement())
}

func (s strategy) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	errs := apivalidation.ValidateObjectMetaUpdate(&obj.(*workshop.Gadget).ObjectMeta, &old.(*workshop.Gadget).ObjectMeta, field.NewPath("metadata"))
	return rest.ValidateDeclarativelyWithMigrationChecks(ctx, s.Scheme, obj, old, errs, operation.Update, rest.WithDeclarativeEnforcement())
}

func (strategy) WarningsOnCreate(context.Context, runtime.Object) []string { return nil }

func (strategy) WarningsOnUpdate(_ context.Context, _, _ runtime.Object) []string { return nil }
