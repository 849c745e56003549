// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"

	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
)

// handwritten implements the interfaces of the library for get, list and watch with the least code.
type handwritten struct{ rest.TableConvertor }

// newStorage is the registry.NewStorage of gadgets.
func newStorage(scheme *runtime.Scheme, _ generic.RESTOptionsGetter, _ authorizer.Authorizer) (map[string]rest.Storage,
	error) {
	scheme.AddKnownTypes(schema.GroupVersion{Group: v1.SchemeGroupVersion.Group, Version: runtime.APIVersionInternal},
		&v1.Gadget{}, &v1.GadgetList{})
	return map[string]rest.Storage{"gadgets": handwritten{rest.NewDefaultTableConvertor(v1.Resource("gadgets"))}}, nil
}

func (handwritten) New() runtime.Object     { return &v1.Gadget{} }
func (handwritten) NewList() runtime.Object { return &v1.GadgetList{} }
func (handwritten) Destroy()                {}
func (handwritten) NamespaceScoped() bool   { return false }
func (handwritten) GetSingularName() string { return "gadget" }

func gadget(name string) *v1.Gadget {
	return &v1.Gadget{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.GadgetSpec{Purpose: name}}
}

// Get implements rest.Getter.
func (handwritten) Get(_ context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	if !slices.Contains(names, name) {
		return nil, apierrors.NewNotFound(v1.Resource("gadgets"), name)
	}
	return gadget(name), nil
}

// List implements rest.Lister. It ignores all options.
//
//nolint:unparam // of rest.Lister
func (handwritten) List(context.Context, *metainternalversion.ListOptions) (runtime.Object, error) {
	list := &v1.GadgetList{}
	for _, name := range names {
		list.Items = append(list.Items, *gadget(name))
	}
	return list, nil
}

// Watch implements rest.Watcher. It sends the objects, and nothing more until the client disconnects.
//
//nolint:unparam // of rest.Watcher
func (handwritten) Watch(context.Context, *metainternalversion.ListOptions) (watch.Interface, error) {
	w := watch.NewFakeWithChanSize(len(names), false)
	for _, name := range names {
		w.Add(gadget(name))
	}
	return w, nil
}
