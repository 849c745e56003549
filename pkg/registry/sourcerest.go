// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"

	"example.com/extension-apiserver/internal/sourcecache"
)

// reader has the verbs get, list and watch of a store, and runs its source.
type reader struct {
	rest.Storage
	rest.Scoper
	rest.SingularNameProvider
	rest.Getter
	rest.Lister
	rest.Watcher
	names
	cache *sourcecache.Cache
}

// RunSource keeps the copy of the source current until the context is done. The server calls it.
func (r reader) RunSource(ctx context.Context) { r.cache.Run(ctx) }

// AwaitSource waits until the copy can be served, or the context is done.
func (r reader) AwaitSource(ctx context.Context) error { return r.cache.Wait(ctx) }

// CheckSource returns the reason why the copy of the source is not served, or nil.
func (r reader) CheckSource() error { return r.cache.Check() }

// The verbs that discovery shows are those whose methods a storage has. These have no other
// methods, which would be ambiguous in a storage that embeds several.
type (
	creater interface {
		Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc,
			options *metav1.CreateOptions) (runtime.Object, error)
	}
	updater interface {
		Update(ctx context.Context, name string, objInfo rest.UpdatedObjectInfo, onCreate rest.ValidateObjectFunc,
			onUpdate rest.ValidateObjectUpdateFunc, create bool, options *metav1.UpdateOptions) (runtime.Object, bool, error)
		rest.ResetFieldsStrategy
	}
	deleter interface {
		rest.GracefulDeleter
		rest.CollectionDeleter
	}
)

// cachedREST returns a storage with the verbs that a source has.
func cachedREST(r reader, store *genericregistry.Store, create, update, remove bool) rest.Storage {
	switch {
	case create && update && remove:
		return struct {
			reader
			creater
			updater
			deleter
		}{r, store, store, store}
	case create && update:
		return struct {
			reader
			creater
			updater
		}{r, store, store}
	case create && remove:
		return struct {
			reader
			creater
			deleter
		}{r, store, store}
	case update && remove:
		return struct {
			reader
			updater
			deleter
		}{r, store, store}
	case create:
		return struct {
			reader
			creater
		}{r, store}
	case update:
		return struct {
			reader
			updater
		}{r, store}
	case remove:
		return struct {
			reader
			deleter
		}{r, store}
	}
	return r
}

func isNil(object any) bool { return object == nil || reflect.ValueOf(object).IsNil() }
