// SPDX-License-Identifier: Apache-2.0

// Package registry holds the table of the resources that the server serves. To add a kind, write its package beside this
// file and add its line; to remove one, delete both.
//
// pkg/apiserver calls it; it calls the package of each kind.
package registry

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"example.com/extension-apiserver/pkg/apis/workshop"
	"example.com/extension-apiserver/pkg/apis/workshop/install"
	"example.com/extension-apiserver/pkg/registry/gadget"
	"example.com/extension-apiserver/pkg/registry/identityreview"
	"example.com/extension-apiserver/pkg/registry/widget"
)

// kinds is THE table: each line makes the storage of one kind, by resource path ("gadgets", "gadgets/status").
var kinds = []func(*runtime.Scheme, generic.RESTOptionsGetter, authorizer.Authorizer) (map[string]rest.Storage, error){
	widget.NewStorage,
	gadget.NewStorage,
	identityreview.NewStorage,
}

// NewAPIGroupInfo makes the storage of every kind once and serves it under each version whose scheme knows the kind. The
// authorizer is for subresources that ask for more than the verb of their request.
func NewAPIGroupInfo(scheme *runtime.Scheme, codecs serializer.CodecFactory, optsGetter generic.RESTOptionsGetter,
	a authorizer.Authorizer) (*genericapiserver.APIGroupInfo, error) {
	group := genericapiserver.NewDefaultAPIGroupInfo(workshop.GroupName, scheme, metav1.ParameterCodec, codecs)
	for _, newStorage := range kinds {
		resources, err := newStorage(scheme, clientFaults{optsGetter}, a)
		if err != nil {
			return nil, err
		}
		for path, storage := range resources {
			if err := addToVersions(&group, scheme, path, storage, resources); err != nil {
				return nil, err
			}
		}
	}
	return &group, nil
}

// addToVersions serves one resource under each version that knows its kind. A subresource follows its parent: its own
// kind (autoscaling/v1 Scale, for example) can belong to another group.
func addToVersions(group *genericapiserver.APIGroupInfo, scheme *runtime.Scheme, path string, storage rest.Storage, resources map[string]rest.Storage) error {
	parent, _, _ := strings.Cut(path, "/")
	main, ok := resources[parent]
	if !ok {
		return fmt.Errorf("register %s: its parent resource %s is not in the same table line", path, parent)
	}
	kind, err := hubKind(scheme, main.New())
	if err != nil {
		return fmt.Errorf("register %s: %w", path, err)
	}
	served := false
	for _, gv := range install.GroupVersions() {
		if !scheme.Recognizes(gv.WithKind(kind)) {
			continue
		}
		if group.VersionedResourcesStorageMap[gv.Version] == nil {
			group.VersionedResourcesStorageMap[gv.Version] = map[string]rest.Storage{}
		}
		group.VersionedResourcesStorageMap[gv.Version][path] = storage
		served = true
	}
	if !served {
		return fmt.Errorf("register %s: no version in install.Versions knows the kind %s", path, kind)
	}
	return nil
}

// hubKind returns the kind of an internal object.
func hubKind(scheme *runtime.Scheme, obj runtime.Object) (string, error) {
	gvks, _, err := scheme.ObjectKinds(obj)
	if err != nil {
		return "", err
	}
	return gvks[0].Kind, nil
}

// LongRunning returns the subresources that connect a stream: no timeout of requests may end them, and they take no seat
// from the requests that are answered at once.
func LongRunning(group *genericapiserver.APIGroupInfo) sets.Set[string] {
	names := sets.New[string]()
	for _, resources := range group.VersionedResourcesStorageMap {
		for path, storage := range resources {
			_, name, _ := strings.Cut(path, "/")
			if _, ok := storage.(rest.Connecter); ok {
				names.Insert(name)
			}
		}
	}
	return names
}
