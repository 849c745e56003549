// SPDX-License-Identifier: Apache-2.0

// Package gadget stores the kind Gadget, the smallest complete kind: what a new kind costs.
package gadget

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"

	"example.com/extension-apiserver/pkg/registry/table"
	"example.com/extension-apiserver/sample/apis/workshop"
)

// NewStorage returns the storage of the resource, by path. One store serves all versions.
func NewStorage(scheme *runtime.Scheme, optsGetter generic.RESTOptionsGetter,
	_ authorizer.Authorizer) (map[string]rest.Storage, error) {
	strategy := newStrategy(scheme)
	store := &genericregistry.Store{
		NewFunc:                   func() runtime.Object { return &workshop.Gadget{} },
		NewListFunc:               func() runtime.Object { return &workshop.GadgetList{} },
		DefaultQualifiedResource:  workshop.Resource("gadgets"),
		SingularQualifiedResource: workshop.Resource("gadget"),
		CreateStrategy:            strategy,
		UpdateStrategy:            strategy,
		DeleteStrategy:            strategy,
		TableConvertor:            columns,
	}
	if err := store.CompleteWithOptions(&generic.StoreOptions{RESTOptions: optsGetter}); err != nil {
		return nil, fmt.Errorf("complete store of gadgets: %w", err)
	}
	return map[string]rest.Storage{"gadgets": &mainREST{store}}, nil
}

// mainREST adds to the store the names under which kubectl finds the resource.
type mainREST struct{ *genericregistry.Store }

func (*mainREST) Categories() []string { return []string{"workshop"} }

// columns is what kubectl get shows.
var columns = table.Convertor{
	Columns: []metav1.TableColumnDefinition{
		{Name: "Name", Type: "string", Format: "name", Description: "Name of the gadget"},
		{Name: "Purpose", Type: "string", Description: "What the gadget is for"},
		{Name: "Age", Type: "string", Description: "Time since creation"},
	},
	Row: func(obj runtime.Object, name, age string) ([]any, error) {
		gadget, ok := obj.(*workshop.Gadget)
		if !ok {
			return nil, fmt.Errorf("table of gadgets: expected *workshop.Gadget, found %T", obj)
		}
		return []any{name, gadget.Spec.Purpose, age}, nil
	},
}
