// SPDX-License-Identifier: Apache-2.0

// Package subresource holds the storage of the subresources that kinds have in common: status, scale, and those that
// connect a stream, with the check of rights that these take. The packages of the kinds use it; it calls the registry
// of k8s.io/apiserver.
package subresource

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// StatusStrategy are the rules of a status: what an update may change, and which fields server-side apply may not own.
type StatusStrategy interface {
	rest.RESTUpdateStrategy
	rest.ResetFieldsStrategy
}

// NewStatus returns the storage of "<resource>/status": the store of the main resource under other rules, limited to
// reading and updating.
func NewStatus(store *genericregistry.Store, strategy StatusStrategy) rest.Storage {
	statusStore := *store
	statusStore.UpdateStrategy = strategy
	statusStore.ResetFieldsStrategy = strategy
	return &statusREST{&statusStore}
}

type statusREST struct{ store *genericregistry.Store }

func (r *statusREST) New() runtime.Object { return r.store.New() }

// Destroy does nothing: the store belongs to the main resource, which destroys it.
func (r *statusREST) Destroy() {}

func (r *statusREST) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	return r.store.Get(ctx, name, options)
}

// Update never creates: forceAllowCreate is dropped, because a status without its object means nothing.
func (r *statusREST) Update(ctx context.Context, name string, objInfo rest.UpdatedObjectInfo,
	createValidation rest.ValidateObjectFunc,
	updateValidation rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions) (runtime.Object,
	bool, error) {
	return r.store.Update(ctx, name, objInfo, createValidation, updateValidation, false, options)
}

// GetUpdateStrategy returns the rules, for tests of a kind.
func (r *statusREST) GetUpdateStrategy() rest.RESTUpdateStrategy { return r.store.UpdateStrategy }

func (r *statusREST) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return r.store.GetResetFields()
}

func (r *statusREST) ConvertToTable(ctx context.Context, object, tableOptions runtime.Object) (*metav1.Table, error) {
	return r.store.ConvertToTable(ctx, object, tableOptions)
}
