// SPDX-License-Identifier: Apache-2.0

package widget

import (
	"fmt"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"

	"example.com/extension-apiserver/pkg/registry"
	"example.com/extension-apiserver/sample/apis/workshop"
)

// attributes returns by what a widget is selected. The names of fields are those of the internal form; each version
// maps its own to them.
func attributes(obj runtime.Object) (labels.Set, fields.Set, error) {
	widget, ok := obj.(*workshop.Widget)
	if !ok {
		return nil, nil, fmt.Errorf("select widgets: expected *workshop.Widget, found %T", obj)
	}
	return widget.Labels, generic.MergeFieldsSets(generic.ObjectMetaFieldsSet(&widget.ObjectMeta, true), fields.Set{
		"spec.model": widget.Spec.Model,
		"spec.grade": string(widget.Spec.Grade),
	}), nil
}

func addSelectableFields(scheme *runtime.Scheme) error {
	for gv, paths := range versions {
		if err := registry.AddSelectableFields(scheme, gv.WithKind("Widget"), paths.selectable); err != nil {
			return err
		}
	}
	return nil
}
