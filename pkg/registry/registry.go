// SPDX-License-Identifier: Apache-2.0

// Package registry describes kinds and builds the API group of a server from them.
package registry

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	storagefactory "k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"
)

// NewStorage creates the storage of one kind, by resource path ("gadgets", "gadgets/status"). The
// authorizer is for subresources that need permissions beyond the verb of their request. The
// server calls it twice with the same scheme. The first call checks the API and completes the
// scheme; it passes no authorizer and the options of Unconnected. A Kind has a method of this
// type.
type NewStorage func(*runtime.Scheme, generic.RESTOptionsGetter, authorizer.Authorizer) (map[string]rest.Storage, error)

// NewAPIGroupInfo creates the storage of every kind once and serves it under each version of the
// group that registers the kind. It returns all errors in the kinds as one utilerrors.Aggregate.
func NewAPIGroupInfo(name string, kinds []NewStorage, scheme *runtime.Scheme, codecs serializer.CodecFactory,
	optsGetter generic.RESTOptionsGetter, a authorizer.Authorizer) (*genericapiserver.APIGroupInfo, error) {
	group := &group{versions: scheme.PrioritizedVersionsForGroup(name), scheme: scheme,
		byVersion: map[string]map[string]rest.Storage{}, kinds: map[string]string{}}
	var problems []error
	for _, newStorage := range kinds {
		resources, err := newStorage(scheme, clientErrors{optsGetter}, a)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		for _, path := range slices.Sorted(maps.Keys(resources)) {
			if err := group.add(path, resources); err != nil {
				problems = append(problems, err)
			}
		}
	}
	// A kind with an error may be the only kind of a version.
	if len(problems) == 0 {
		problems = group.empty()
	}
	if len(problems) > 0 {
		return nil, utilerrors.NewAggregate(problems)
	}
	info := genericapiserver.NewDefaultAPIGroupInfo(name, scheme, runtime.NewParameterCodec(scheme), codecs)
	info.VersionedResourcesStorageMap = group.byVersion
	return &info, nil
}

type group struct {
	versions  []schema.GroupVersion
	scheme    *runtime.Scheme
	byVersion map[string]map[string]rest.Storage
	kinds     map[string]string // of each resource and subresource
}

// add serves one resource under each version that registers its kind. A subresource is served
// where its parent is, because its own kind, such as autoscaling/v1 Scale, can belong to another
// group.
func (g *group) add(path string, resources map[string]rest.Storage) error {
	parent, _, _ := strings.Cut(path, "/")
	main, ok := resources[parent]
	if !ok {
		return fmt.Errorf("register %s: the same NewStorage does not make its parent resource %s", path, parent)
	}
	kind, err := g.hubKind(main.New())
	if err != nil {
		return fmt.Errorf("register %s: %w", path, err)
	}
	if other, ok := g.kinds[path]; ok { // also in another version: their objects have the same keys in etcd
		return fmt.Errorf("register %s: two kinds have this resource: %s and %s", path, other, kind)
	}
	g.kinds[path] = kind
	var served []schema.GroupVersion
	for _, gv := range g.versions {
		if !g.scheme.Recognizes(gv.WithKind(kind)) {
			continue
		}
		if g.byVersion[gv.Version] == nil {
			g.byVersion[gv.Version] = map[string]rest.Storage{}
		}
		if err := g.checkList(gv, path, main); err != nil {
			return err
		}
		g.byVersion[gv.Version][path] = resources[path]
		if s, ok := resources[path].(inVersions); ok {
			g.byVersion[gv.Version][path] = s.inVersion(gv)
		}
		served = append(served, gv)
	}
	if len(served) == 0 {
		return fmt.Errorf("register %s: no served version knows the kind %s", path, kind)
	}
	if err := addQueryOptions(g.scheme, resources[path], served); err != nil {
		return fmt.Errorf("register %s: %w", path, err)
	}
	return nil
}

// inVersions is implemented by storage that depends on the version in which it is served.
type inVersions interface {
	inVersion(schema.GroupVersion) rest.Storage
}

// checkList returns an error if the list type of a kind is not registered. Otherwise the library
// would respond to each list request with 500.
func (g *group) checkList(gv schema.GroupVersion, path string, main rest.Storage) error {
	lister, ok := main.(rest.Lister)
	if !ok {
		return nil
	}
	list := lister.NewList()
	if !meta.IsListType(list) {
		return fmt.Errorf("register %s: NewList returns %T, which is not a list", path, list)
	}
	kind, err := g.hubKind(list)
	if err != nil {
		return fmt.Errorf("register %s: %w", path, err)
	}
	if !g.scheme.Recognizes(gv.WithKind(kind)) {
		return fmt.Errorf("register %s: version %s does not know the kind %s", path, gv.Version, kind)
	}
	return nil
}

// empty returns an error for each version that serves no kind.
func (g *group) empty() []error {
	var problems []error
	for _, gv := range g.versions {
		if len(g.byVersion[gv.Version]) == 0 {
			problems = append(problems, fmt.Errorf("no kind is served in version %s", gv))
		}
	}
	return problems
}

// hubKind returns the kind of an internal object.
func (g *group) hubKind(obj runtime.Object) (string, error) {
	gvks, _, err := g.scheme.ObjectKinds(obj)
	if err != nil {
		return "", err
	}
	return gvks[0].Kind, nil
}

// Unconnected creates stores without a storage backend.
type Unconnected struct{}

// GetRESTOptions implements generic.RESTOptionsGetter.
func (Unconnected) GetRESTOptions(resource schema.GroupResource, _ runtime.Object) (generic.RESTOptions, error) {
	return generic.RESTOptions{
		StorageConfig:  &storagebackend.ConfigForResource{GroupResource: resource},
		ResourcePrefix: resource.Resource,
		Decorator: func(*storagebackend.ConfigForResource, string, func(runtime.Object) (string, error),
			func() runtime.Object,
			func() runtime.Object, storage.AttrFunc, storage.IndexerFuncs, *cache.Indexers) (storage.Interface,
			storagefactory.DestroyFunc, error) {
			return nil, func() {}, nil
		},
	}, nil
}
