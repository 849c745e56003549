// SPDX-License-Identifier: Apache-2.0

package widget

import (
	"context"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/operation"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage/names"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"example.com/extension-apiserver/pkg/apis/workshop"
	"example.com/extension-apiserver/pkg/apis/workshop/install"
)

// strategy holds the rules for the main resource: status is out of reach, and the generation counts changes of the spec.
type strategy struct {
	*runtime.Scheme
	names.NameGenerator
}

func newStrategy(scheme *runtime.Scheme) strategy {
	return strategy{scheme, names.SimpleNameGenerator}
}

func (strategy) NamespaceScoped() bool           { return true }
func (strategy) AllowCreateOnUpdate() bool       { return false }
func (strategy) AllowUnconditionalUpdate() bool  { return true }
func (strategy) Canonicalize(obj runtime.Object) {}

func (strategy) PrepareForCreate(_ context.Context, obj runtime.Object) {
	widget := obj.(*workshop.Widget)
	widget.Status = workshop.WidgetStatus{}
	widget.Generation = 1
}

func (strategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	widget, oldWidget := obj.(*workshop.Widget), old.(*workshop.Widget)
	widget.Status = oldWidget.Status
	if !apiequality.Semantic.DeepEqual(widget.Spec, oldWidget.Spec) {
		widget.Generation = oldWidget.Generation + 1
	}
}

func (s strategy) Validate(ctx context.Context, obj runtime.Object) field.ErrorList {
	return rest.ValidateDeclarativelyWithMigrationChecks(ctx, s.Scheme, obj, nil,
		validate(obj.(*workshop.Widget)), operation.Create, rest.WithDeclarativeEnforcement())
}

func (s strategy) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	return rest.ValidateDeclarativelyWithMigrationChecks(ctx, s.Scheme, obj, old,
		validateUpdate(obj.(*workshop.Widget), old.(*workshop.Widget)), operation.Update, rest.WithDeclarativeEnforcement())
}

func (strategy) WarningsOnCreate(context.Context, runtime.Object) []string { return nil }

func (strategy) WarningsOnUpdate(_ context.Context, _, _ runtime.Object) []string { return nil }

// GetResetFields keeps server-side apply from owning fields that the main resource does not let a client set.
func (strategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return resetFields("status")
}

// statusStrategy holds the rules for the subresource status: only the status changes.
type statusStrategy struct{ strategy }

func (statusStrategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	widget, oldWidget := obj.(*workshop.Widget), old.(*workshop.Widget)
	widget.Spec = oldWidget.Spec
	widget.Labels = oldWidget.Labels
	widget.Annotations = oldWidget.Annotations
	widget.Finalizers = oldWidget.Finalizers
	widget.OwnerReferences = oldWidget.OwnerReferences
}

func (s statusStrategy) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	return rest.ValidateDeclarativelyWithMigrationChecks(ctx, s.Scheme, obj, old,
		validateStatus(obj.(*workshop.Widget)), operation.Update, rest.WithDeclarativeEnforcement())
}

func (statusStrategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return resetFields("spec")
}

// resetFields says for every served version that the top-level field is reset: a version that is left out would let
// server-side apply own the field through it.
func resetFields(name string) map[fieldpath.APIVersion]*fieldpath.Set {
	fields := map[fieldpath.APIVersion]*fieldpath.Set{}
	for _, gv := range install.GroupVersions() {
		fields[fieldpath.APIVersion(gv.String())] = fieldpath.NewSet(fieldpath.MakePathOrDie(name))
	}
	return fields
}

// validate holds the rules that tags cannot say: the name is a DNS subdomain as with built-in kinds, and replicas stays
// below maxReplicas.
func validate(widget *workshop.Widget) field.ErrorList {
	errs := apivalidation.ValidateObjectMeta(&widget.ObjectMeta, true, apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
	return append(errs, validateReplicas(&widget.Spec)...)
}

// validateUpdate applies the cross-field rule only when one of its fields changes, so that an object stored before the
// rule existed can still be updated elsewhere.
func validateUpdate(widget, old *workshop.Widget) field.ErrorList {
	errs := apivalidation.ValidateObjectMetaUpdate(&widget.ObjectMeta, &old.ObjectMeta, field.NewPath("metadata"))
	if apiequality.Semantic.DeepEqual(widget.Spec.Replicas, old.Spec.Replicas) &&
		apiequality.Semantic.DeepEqual(widget.Spec.MaxReplicas, old.Spec.MaxReplicas) {
		return errs
	}
	return append(errs, validateReplicas(&widget.Spec)...)
}

func validateReplicas(spec *workshop.WidgetSpec) field.ErrorList {
	if spec.Replicas == nil || spec.MaxReplicas == nil || *spec.Replicas <= *spec.MaxReplicas {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("spec", "replicas"), *spec.Replicas, "must not be greater than spec.maxReplicas")}
}

func validateStatus(widget *workshop.Widget) field.ErrorList {
	if widget.Status.ReadyReplicas <= widget.Status.Replicas {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("status", "readyReplicas"), widget.Status.ReadyReplicas, "must not be greater than status.replicas")}
}
