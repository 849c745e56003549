// SPDX-License-Identifier: Apache-2.0

package gadget

import (
	"context"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"example.com/extension-apiserver/pkg/registry/strategy"
	"example.com/extension-apiserver/sample/apis/workshop"
)

type gadgetStrategy struct{ strategy.Base }

func newStrategy(scheme *runtime.Scheme) gadgetStrategy {
	return gadgetStrategy{strategy.New(scheme, workshop.GroupName)}
}

func (gadgetStrategy) NamespaceScoped() bool { return false }

func (gadgetStrategy) PrepareForCreate(_ context.Context, obj runtime.Object) {
	obj.(*workshop.Gadget).Generation = 1
}

func (gadgetStrategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	gadget, oldGadget := obj.(*workshop.Gadget), old.(*workshop.Gadget)
	if !apiequality.Semantic.DeepEqual(gadget.Spec, oldGadget.Spec) {
		gadget.Generation = oldGadget.Generation + 1
	}
}

func (s gadgetStrategy) Validate(ctx context.Context, obj runtime.Object) field.ErrorList {
	meta := &obj.(*workshop.Gadget).ObjectMeta
	return s.Enforce(ctx, obj, nil, apivalidation.ValidateObjectMeta(meta, false, apivalidation.NameIsDNSSubdomain,
		field.NewPath("metadata")))
}

func (s gadgetStrategy) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	meta, oldMeta := &obj.(*workshop.Gadget).ObjectMeta, &old.(*workshop.Gadget).ObjectMeta
	return s.Enforce(ctx, obj, old, apivalidation.ValidateObjectMetaUpdate(meta, oldMeta, field.NewPath("metadata")))
}
