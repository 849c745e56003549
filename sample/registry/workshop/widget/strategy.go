// SPDX-License-Identifier: Apache-2.0

package widget

import (
	"context"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"example.com/extension-apiserver/pkg/registry/strategy"
	"example.com/extension-apiserver/sample/apis/workshop"
)

// widgetStrategy holds the rules for the main resource: status is out of reach, and the generation counts changes of
// the spec.
type widgetStrategy struct{ strategy.Base }

func newStrategy(scheme *runtime.Scheme) widgetStrategy {
	return widgetStrategy{strategy.New(scheme, workshop.GroupName)}
}

func (widgetStrategy) NamespaceScoped() bool { return true }

func (widgetStrategy) PrepareForCreate(_ context.Context, obj runtime.Object) {
	widget := obj.(*workshop.Widget)
	widget.Status = workshop.WidgetStatus{}
	widget.Generation = 1
}

func (widgetStrategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	widget, oldWidget := obj.(*workshop.Widget), old.(*workshop.Widget)
	widget.Status = oldWidget.Status
	if !apiequality.Semantic.DeepEqual(widget.Spec, oldWidget.Spec) {
		widget.Generation = oldWidget.Generation + 1
	}
}

func (s widgetStrategy) Validate(ctx context.Context, obj runtime.Object) field.ErrorList {
	return s.Enforce(ctx, obj, nil, validate(ctx, obj.(*workshop.Widget), requestPaths(ctx)))
}

func (s widgetStrategy) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	return s.Enforce(ctx, obj, old, validateUpdate(ctx, obj.(*workshop.Widget), old.(*workshop.Widget),
		requestPaths(ctx)))
}

// GetResetFields keeps server-side apply from owning fields that the main resource does not let a client set.
func (s widgetStrategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return s.ResetFields("status")
}

// statusStrategy holds the rules for the subresource status: only the status changes.
type statusStrategy struct{ widgetStrategy }

func (statusStrategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	widget, oldWidget := obj.(*workshop.Widget), old.(*workshop.Widget)
	widget.Spec = oldWidget.Spec
	widget.Labels = oldWidget.Labels
	widget.Annotations = oldWidget.Annotations
	widget.Finalizers = oldWidget.Finalizers
	widget.OwnerReferences = oldWidget.OwnerReferences
}

func (s statusStrategy) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	widget, oldWidget := obj.(*workshop.Widget), old.(*workshop.Widget)
	errs := apivalidation.ValidateObjectMetaUpdate(&widget.ObjectMeta, &oldWidget.ObjectMeta, field.NewPath("metadata"))
	return s.Enforce(ctx, obj, old, append(errs, validateStatus(&widget.Status, &oldWidget.Status)...))
}

// GetResetFields has the metadata too: who applies a status with labels neither owns them nor conflicts with who does.
func (s statusStrategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return s.ResetFields("spec", "metadata")
}
