// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"errors"
	"path"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"

	"example.com/extension-apiserver/internal/patch"
	"example.com/extension-apiserver/internal/restoptions"
)

// clientErrors replaces responses of 500 with 4xx where the client caused the error, for built-in
// kinds too. The response is 422 if the resourceVersion of a get, watch or update is not a
// number, or if a create sets one. It is 400 if an apply patch does not match the schema. A
// negative limit, which the library treats as no limit, is also 422.
type clientErrors struct{ generic.RESTOptionsGetter }

func (c clientErrors) GetRESTOptions(resource schema.GroupResource,
	example runtime.Object) (generic.RESTOptions, error) {
	options, err := c.RESTOptionsGetter.GetRESTOptions(resource, example)
	_, sourced := example.(restoptions.Sourced)
	return restoptions.Wrap(options, func(s storage.Interface, _ string, _ func() runtime.Object) storage.Interface {
		return clientErrorStorage{s, resource, &atomic.Uint64{}, sourced}
	}), err
}

type clientErrorStorage struct {
	storage.Interface
	resource schema.GroupResource
	// reached is a resourceVersion that etcd is known to have reached.
	reached *atomic.Uint64
	// sourced is true for a storage whose resourceVersions have no order with those of other
	// replicas. It rejects these itself.
	sourced bool
}

// checkReached returns an error if etcd has not reached a resourceVersion. The library returns
// the same error only after 3 s, during which the request would occupy its API Priority and
// Fairness seats.
func (s clientErrorStorage) checkReached(ctx context.Context, resourceVersion string) error {
	requested, err := s.Interface.Versioner().ParseResourceVersion(resourceVersion)
	if err != nil || s.sourced || requested <= s.reached.Load() {
		return nil // the storage reports versions that cannot be parsed
	}
	current, err := s.GetCurrentResourceVersion(ctx)
	if err != nil {
		return nil //nolint:nilerr // the storage reports the etcd that does not respond
	}
	s.reached.Store(current)
	if requested > current {
		return storage.NewTooLargeResourceVersionError(requested, current, 1)
	}
	return nil
}

func (s clientErrorStorage) Versioner() storage.Versioner {
	return clientErrorVersioner{s.Interface.Versioner(), s.resource}
}

func (s clientErrorStorage) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	err := s.Interface.Create(ctx, key, obj, out, ttl)
	if errors.Is(err, storage.ErrResourceVersionSetOnCreate) {
		return invalid(s.resource, path.Base(key), field.ErrorList{field.Forbidden(
			field.NewPath("metadata", "resourceVersion"), "may not be set on create")})
	}
	return withStatus(err, true)
}

func (s clientErrorStorage) Delete(ctx context.Context, key string, out runtime.Object,
	preconditions *storage.Preconditions,
	validateDeletion storage.ValidateObjectFunc, cached runtime.Object, opts storage.DeleteOptions) error {
	return withStatus(s.Interface.Delete(ctx, key, out, preconditions, validateDeletion, cached, opts), true)
}

func (s clientErrorStorage) Get(ctx context.Context, key string, opts storage.GetOptions, out runtime.Object) error {
	if err := s.checkReached(ctx, opts.ResourceVersion); err != nil {
		return err
	}
	if err := s.Interface.Get(ctx, key, opts, out); err != nil {
		return s.explain(key, err)
	}
	return patch.CheckStored(ctx, out) // a dry run patches the object that Get returns
}

func (s clientErrorStorage) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	if opts.SendInitialEvents != nil && *opts.SendInitialEvents {
		if err := s.checkReached(ctx, opts.ResourceVersion); err != nil {
			return nil, err
		}
	}
	w, err := s.Interface.Watch(ctx, key, opts)
	return w, s.explain(key, err)
}

func (s clientErrorStorage) GetList(ctx context.Context, key string, opts storage.ListOptions,
	list runtime.Object) error {
	if limit := opts.Predicate.Limit; limit < 0 {
		return invalid(s.resource, "", field.ErrorList{field.Invalid(field.NewPath("limit"), limit,
			"must be greater than or equal to 0")})
	}
	if opts.ResourceVersionMatch != metav1.ResourceVersionMatchExact {
		if err := s.checkReached(ctx, opts.ResourceVersion); err != nil {
			return err
		}
	}
	return withStatus(s.Interface.GetList(ctx, key, opts, list), false)
}

func (s clientErrorStorage) GuaranteedUpdate(ctx context.Context, key string, out runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions,
	tryUpdate storage.UpdateFunc, cached runtime.Object) error {
	update := func(stored runtime.Object, meta storage.ResponseMeta) (runtime.Object, *uint64, error) {
		if err := patch.CheckStored(ctx, stored); err != nil {
			return nil, nil, err
		}
		return tryUpdate(stored, meta)
	}
	err := s.Interface.GuaranteedUpdate(ctx, key, out, ignoreNotFound, preconditions, update, cached)
	return withStatus(patch.StatusError(err, s.resource, path.Base(key)), true)
}

// explain converts the error that the storage returns for an invalid parameter to an API status.
func (s clientErrorStorage) explain(key string, err error) error {
	var bad storage.InvalidError
	if !errors.As(err, &bad) {
		return withStatus(err, false)
	}
	return invalid(s.resource, path.Base(key), bad.Errs)
}

type clientErrorVersioner struct {
	storage.Versioner
	resource schema.GroupResource
}

func (v clientErrorVersioner) ObjectResourceVersion(obj runtime.Object) (uint64, error) {
	version, err := v.Versioner.ObjectResourceVersion(obj)
	if err == nil {
		return version, nil
	}
	object, accessErr := meta.Accessor(obj)
	if accessErr != nil {
		return 0, err
	}
	return 0, invalid(v.resource, object.GetName(), field.ErrorList{field.Invalid(
		field.NewPath("metadata", "resourceVersion"), object.GetResourceVersion(), err.Error())})
}

func invalid(resource schema.GroupResource, name string, errs field.ErrorList) error {
	return apierrors.NewInvalid(schema.GroupKind{Group: resource.Group, Kind: resource.Resource}, name, errs)
}
