// SPDX-License-Identifier: Apache-2.0

// Package widget stores the kind Widget: its rules (strategy.go), its columns (columns.go) and its REST storage with the
// subresource status.
//
// pkg/registry lists it in its table; it calls the generic registry of k8s.io/apiserver.
package widget

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"example.com/extension-apiserver/pkg/apis/workshop"
)

// NewStorage returns the storage of the resource and its subresources, by path. One store serves all versions.
func NewStorage(scheme *runtime.Scheme, optsGetter generic.RESTOptionsGetter) (map[string]rest.Storage, error) {
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
	if err := store.CompleteWithOptions(&generic.StoreOptions{RESTOptions: optsGetter}); err != nil {
		return nil, fmt.Errorf("complete store of widgets: %w", err)
	}
	statusStore := *store
	statusStore.UpdateStrategy = statusStrategy{strategy}
	statusStore.ResetFieldsStrategy = statusStrategy{strategy}
	return map[string]rest.Storage{
		"widgets":        &mainREST{store},
		"widgets/status": &statusREST{&statusStore},
	}, nil
}

// mainREST adds to the store the names under which kubectl finds the resource.
type mainREST struct{ *genericregistry.Store }

func (*mainREST) ShortNames() []string { return []string{"wg"} }
func (*mainREST) Categories() []string { return []string{"workshop"} }

// statusREST limits the store to reading and updating the status.
type statusREST struct{ store *genericregistry.Store }

func (r *statusREST) New() runtime.Object { return r.store.New() }

// Destroy does nothing: the store belongs to the main resource, which destroys it.
func (r *statusREST) Destroy() {}

func (r *statusREST) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	return r.store.Get(ctx, name, options)
}

// Update never creates: forceAllowCreate is dropped, because a status without its object means nothing.
func (r *statusREST) Update(ctx context.Context, name string, objInfo rest.UpdatedObjectInfo, createValidation rest.ValidateObjectFunc,
	updateValidation rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	return r.store.Update(ctx, name, objInfo, createValidation, updateValidation, false, options)
}

func (r *statusREST) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return r.store.GetResetFields()
}

func (r *statusREST) ConvertToTable(ctx context.Context, object, tableOptions runtime.Object) (*metav1.Table, error) {
	return r.store.ConvertToTable(ctx, object, tableOptions)
}
