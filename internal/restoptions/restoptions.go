// SPDX-License-Identifier: Apache-2.0

// Package restoptions wraps the storages that REST options create.
package restoptions

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	storagefactory "k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"
)

// Wrap returns options that create the result of wrap for each storage that the given options
// create. wrap receives the prefix of the storage's keys, and a function that returns an empty
// object.
func Wrap(options generic.RESTOptions,
	wrap func(s storage.Interface, prefix string, newFunc func() runtime.Object) storage.Interface) generic.RESTOptions {
	decorator := options.Decorator
	options.Decorator = func(config *storagebackend.ConfigForResource, prefix string,
		keyFunc func(runtime.Object) (string, error), newFunc, newListFunc func() runtime.Object,
		attributes storage.AttrFunc, triggers storage.IndexerFuncs, indexers *cache.Indexers) (storage.Interface,
		storagefactory.DestroyFunc, error) {
		s, destroy, err := decorator(config, prefix, keyFunc, newFunc, newListFunc, attributes, triggers, indexers)
		if err != nil || s == nil { // Unconnected creates none
			return s, destroy, err
		}
		return wrap(s, prefix, newFunc), destroy, nil
	}
	return options
}

// Sourced is an example object, for GetRESTOptions, of a kind that is not stored in etcd.
type Sourced struct {
	runtime.Object
	// Decorator creates the storage of the kind.
	Decorator generic.StorageDecorator
	// KeepsMetadata is true if the storage keeps finalizers, which the garbage collector sets.
	KeepsMetadata bool
}

// WithSources returns a getter whose options create the storages of Sourced. It must be the innermost
// getter: the others wrap the storages that it creates.
func WithSources(getter generic.RESTOptionsGetter) generic.RESTOptionsGetter {
	return withSources{getter}
}

type withSources struct{ generic.RESTOptionsGetter }

// GetRESTOptions implements generic.RESTOptionsGetter.
func (g withSources) GetRESTOptions(of schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	sourced, ok := example.(Sourced)
	if !ok {
		return g.RESTOptionsGetter.GetRESTOptions(of, example)
	}
	options, err := g.RESTOptionsGetter.GetRESTOptions(of, sourced.Object)
	if err != nil {
		return options, err
	}
	options.Decorator = sourced.Decorator
	options.EnableGarbageCollection = sourced.KeepsMetadata
	// The objects are not stored, so they are not encrypted either.
	config := *options.StorageConfig
	config.Transformer = nil
	options.StorageConfig = &config
	return options, nil
}
