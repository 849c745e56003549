// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
)

// authorizeCreate returns a hook that calls Authorize with the object to be stored, or nil if the
// kind has no Authorize. The library calls the hook before the strategy prepares the object. A
// later check would run after validation, whose errors would then precede it.
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

// authorizeUpdate returns the hook of authorizeCreate for updates.
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
