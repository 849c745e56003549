// SPDX-License-Identifier: Apache-2.0

// Package subresource provides the storage of common subresources: status, scale, log and
// streaming sessions, with the authorization checks that streaming sessions need. The packages of
// the kinds use it. It calls the registry of k8s.io/apiserver.
package subresource

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// StatusStrategy defines which fields an update of the status may change, and which fields
// server-side apply cannot own.
type StatusStrategy interface {
	rest.RESTUpdateStrategy
	rest.ResetFieldsStrategy
}

// NewStatus returns the storage of "<resource>/status": the store of the main resource with
// another strategy, limited to get and update.
func NewStatus(store *genericregistry.Store, strategy StatusStrategy) rest.Storage {
	statusStore := *store
	statusStore.UpdateStrategy = strategy
	statusStore.ResetFieldsStrategy = strategy
	return &statusREST{&statusStore}
}

type statusREST struct{ store *genericregistry.Store }

func (r *statusREST) New() runtime.Object { return r.store.New() }

// Destroy does nothing: the main resource destroys the store.
func (r *statusREST) Destroy() {}

func (r *statusREST) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	return r.store.Get(ctx, name, options)
}

// Update never creates an object. It ignores forceAllowCreate, because a status cannot exist
// without its object.
func (r *statusREST) Update(ctx context.Context, name string, objInfo rest.UpdatedObjectInfo,
	createValidation rest.ValidateObjectFunc,
	updateValidation rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions) (runtime.Object,
	bool, error) {
	return r.store.Update(ctx, name, objInfo, createValidation, updateValidation, false, options)
}

// GetUpdateStrategy returns the update strategy, for tests of a kind.
func (r *statusREST) GetUpdateStrategy() rest.RESTUpdateStrategy { return r.store.UpdateStrategy }

func (r *statusREST) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return r.store.GetResetFields()
}

func (r *statusREST) ConvertToTable(ctx context.Context, object, tableOptions runtime.Object) (*metav1.Table, error) {
	return r.store.ConvertToTable(ctx, object, tableOptions)
}
