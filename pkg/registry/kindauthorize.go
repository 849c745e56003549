// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
)

// authorizeCreate returns a hook that calls Authorize with the object that is to be stored, or nil without Authorize.
// The library calls it before the strategy prepares the object, which an error of validation would precede otherwise.
func (d *description[T]) authorizeCreate(a authorizer.Authorizer,
	strategy interface {
		PrepareForCreate(context.Context, runtime.Object)
	}) genericregistry.BeginCreateFunc {
	if d.Authorize == nil {
		return nil
	}
	return func(ctx context.Context, obj runtime.Object, _ *metav1.CreateOptions) (genericregistry.FinishFunc, error) {
		prepared := obj.DeepCopyObject()
		strategy.PrepareForCreate(ctx, prepared)
		var none T
		return finish, d.Authorize(ctx, a, prepared.(T), none) //nolint:forcetypeassert // a panic is counted
	}
}

// authorizeUpdate does the same for an update.
func (d *description[T]) authorizeUpdate(a authorizer.Authorizer,
	strategy interface {
		PrepareForUpdate(ctx context.Context, obj, old runtime.Object)
	}) genericregistry.BeginUpdateFunc {
	if d.Authorize == nil {
		return nil
	}
	return func(ctx context.Context, obj, old runtime.Object, _ *metav1.UpdateOptions) (genericregistry.FinishFunc,
		error) {
		prepared := obj.DeepCopyObject()
		strategy.PrepareForUpdate(ctx, prepared, old)
		//nolint:forcetypeassert // a panic is counted
		return finish, d.Authorize(ctx, a, prepared.(T), old.(T))
	}
}

func finish(context.Context, bool) {}
