// SPDX-License-Identifier: Apache-2.0

// Package widget stores the kind Widget: its rules (strategy.go, validation.go), its columns (columns.go), the fields
// by which it is selected and the names that they have in each version (selection.go, fields.go), and its REST storage
// with the subresources status, scale and console (console_session.go).
package widget

import (
	"fmt"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"

	"example.com/extension-apiserver/pkg/registry/subresource"
	"example.com/extension-apiserver/sample/apis/workshop"
)

// NewStorage returns the storage of the resource and its subresources, by path. One store serves all versions.
func NewStorage(scheme *runtime.Scheme, optsGetter generic.RESTOptionsGetter,
	a authorizer.Authorizer) (map[string]rest.Storage, error) {
	if err := addSelectableFields(scheme); err != nil {
		return nil, err
	}
	strategy := newStrategy(scheme)
	store := &genericregistry.Store{
		NewFunc:                   func() runtime.Object { return &workshop.Widget{} },
		NewListFunc:               func() runtime.Object { return &workshop.WidgetList{} },
		DefaultQualifiedResource:  workshop.Resource("widgets"),
		SingularQualifiedResource: workshop.Resource("widget"),
		CreateStrategy:            strategy,
		UpdateStrategy:            strategy,
		DeleteStrategy:            strategy,
		ResetFieldsStrategy:       strategy,
		TableConvertor:            columns,
	}
	if err := store.CompleteWithOptions(&generic.StoreOptions{RESTOptions: optsGetter,
		AttrFunc: attributes}); err != nil {
		return nil, fmt.Errorf("complete store of widgets: %w", err)
	}
	return map[string]rest.Storage{
		"widgets":         &mainREST{store},
		"widgets/status":  subresource.NewStatus(store, statusStrategy{strategy}),
		"widgets/scale":   subresource.NewScale(store, scaling),
		"widgets/console": subresource.NewStream(store, a, "console", newConsoleSession(store, a)),
	}, nil
}

// mainREST adds to the store the names under which kubectl finds the resource.
type mainREST struct{ *genericregistry.Store }

func (*mainREST) ShortNames() []string { return []string{"wg"} }
func (*mainREST) Categories() []string { return []string{"workshop"} }

// scaling connects kubectl scale and the HorizontalPodAutoscaler with the fields of a widget.
var scaling = subresource.Scaling{
	Scale: func(obj runtime.Object) *autoscalingv1.Scale {
		widget := obj.(*workshop.Widget)
		scale := &autoscalingv1.Scale{Status: autoscalingv1.ScaleStatus{Replicas: widget.Status.Replicas,
			Selector: widget.Status.Selector}}
		if widget.Spec.Replicas != nil {
			scale.Spec.Replicas = *widget.Spec.Replicas
		}
		return scale
	},
	SetReplicas: func(obj runtime.Object, replicas int32) {
		obj.(*workshop.Widget).Spec.Replicas = &replicas
	},
	ReplicasPaths: replicasPaths(),
}
