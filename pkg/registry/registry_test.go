// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	storagefactory "k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"

	"example.com/extension-apiserver/pkg/apis/workshop"
	"example.com/extension-apiserver/pkg/apis/workshop/install"
	v1 "example.com/extension-apiserver/pkg/apis/workshop/v1"
)

// unconnected makes stores that have no storage behind them, and counts them.
type unconnected struct{ stores int }

func (u *unconnected) GetRESTOptions(resource schema.GroupResource, _ runtime.Object) (generic.RESTOptions, error) {
	return generic.RESTOptions{
		StorageConfig:  &storagebackend.ConfigForResource{GroupResource: resource},
		ResourcePrefix: resource.Resource,
		Decorator: func(*storagebackend.ConfigForResource, string, func(runtime.Object) (string, error), func() runtime.Object,
			func() runtime.Object, storage.AttrFunc, storage.IndexerFuncs, *cache.Indexers) (storage.Interface, storagefactory.DestroyFunc, error) {
			u.stores++
			return nil, func() {}, nil
		},
	}, nil
}

// addVersion serves one more version for the time of the test, which knows nothing but Gadget.
func addVersion(t *testing.T, version string) {
	t.Helper()
	gv := schema.GroupVersion{Group: workshop.GroupName, Version: version}
	before := install.Versions
	t.Cleanup(func() { install.Versions = before })
	install.Versions = append(slices.Clone(before), install.Version{GroupVersion: gv, AddToScheme: func(scheme *runtime.Scheme) error {
		scheme.AddKnownTypes(gv, &v1.Gadget{}, &v1.GadgetList{})
		metav1.AddToGroupVersion(scheme, gv)
		return nil
	}})
}

func newGroup(t *testing.T, getter generic.RESTOptionsGetter) (*genericapiserver.APIGroupInfo, *runtime.Scheme, error) {
	t.Helper()
	scheme := runtime.NewScheme()
	install.Install(scheme)
	group, err := NewAPIGroupInfo(scheme, serializer.NewCodecFactory(scheme), getter, nil)
	return group, scheme, err
}

// TestEveryKindIsServed: each version serves the kinds that it knows, all of them, and no others.
func TestEveryKindIsServed(t *testing.T) {
	addVersion(t, "v99")
	group, scheme, err := newGroup(t, &unconnected{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(install.GroupVersions(), group.PrioritizedVersions); diff != "" {
		t.Errorf("versions in discovery (-want +got):\n%s", diff)
	}
	for _, gv := range install.GroupVersions() {
		var want, got []string
		for kind := range scheme.KnownTypes(workshop.SchemeGroupVersion) {
			if scheme.Recognizes(gv.WithKind(kind)) && !strings.HasSuffix(kind, "List") && !strings.HasSuffix(kind, "Options") && kind != metav1.WatchEventKind {
				want = append(want, kind)
			}
		}
		for path, served := range group.VersionedResourcesStorageMap[gv.Version] {
			if !strings.Contains(path, "/") {
				kind, err := hubKind(scheme, served.New())
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, kind)
			}
		}
		slices.Sort(want)
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("kinds served as %s (-want +got):\n%s", gv, diff)
		}
	}
	if got := group.VersionedResourcesStorageMap["v99"]; len(got) != 1 || got["gadgets"] == nil {
		t.Errorf("resources of a version that knows Gadget only: got %v, want gadgets", got)
	}
}

// TestOneStorePerResource: a second version costs no second watch of etcd.
func TestOneStorePerResource(t *testing.T) {
	count := func() (int, *genericapiserver.APIGroupInfo) {
		getter := &unconnected{}
		group, _, err := newGroup(t, getter)
		if err != nil {
			t.Fatal(err)
		}
		return getter.stores, group
	}
	want, _ := count()
	addVersion(t, "v99")
	got, group := count()
	if got != want || got == 0 {
		t.Errorf("stores with one version more: got %d, want %d as before", got, want)
	}
	first, second := group.VersionedResourcesStorageMap["v1"]["gadgets"], group.VersionedResourcesStorageMap["v99"]["gadgets"]
	if first == nil || first != second {
		t.Errorf("store of gadgets: got %p for v1 and %p for v99, want one", first, second)
	}
}

// virtual is a storage of the kind of its object.
type virtual struct{ object runtime.Object }

func (v *virtual) New() runtime.Object { return v.object }
func (*virtual) Destroy()              {}

// TestTableErrors: a mistake in the table is found at start, and named.
func TestTableErrors(t *testing.T) {
	installed := runtime.NewScheme()
	install.Install(installed)
	hubOnly := runtime.NewScheme()
	if err := workshop.AddToScheme(hubOnly); err != nil {
		t.Fatal(err)
	}
	gadgets := &virtual{&workshop.Gadget{}}
	for _, tc := range []struct {
		name      string
		scheme    *runtime.Scheme
		path      string
		resources map[string]rest.Storage
		want      string
	}{
		{"subresource without parent", installed, "gadgets/status", map[string]rest.Storage{"gadgets/status": gadgets},
			"register gadgets/status: its parent resource gadgets is not in the same table line"},
		{"kind of nobody", installed, "things", map[string]rest.Storage{"things": &virtual{&metav1.PartialObjectMetadata{}}},
			"register things: no kind is registered for the type v1.PartialObjectMetadata"},
		{"kind of no version", hubOnly, "gadgets", map[string]rest.Storage{"gadgets": gadgets},
			"register gadgets: no version in install.Versions knows the kind Gadget"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			group := &genericapiserver.APIGroupInfo{VersionedResourcesStorageMap: map[string]map[string]rest.Storage{}}
			err := addToVersions(group, tc.scheme, tc.path, tc.resources[tc.path], tc.resources)
			if err == nil || !strings.HasPrefix(err.Error(), tc.want) {
				t.Errorf("got error %v, want %s", err, tc.want)
			}
			if len(group.VersionedResourcesStorageMap) != 0 {
				t.Errorf("served in spite of the error: %v", group.VersionedResourcesStorageMap)
			}
		})
	}
}

// TestSubresourceFollowsItsParent: its own kind can be one that no version of the group knows, such as autoscaling's Scale.
func TestSubresourceFollowsItsParent(t *testing.T) {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	scale := &virtual{&metav1.PartialObjectMetadata{}}
	resources := map[string]rest.Storage{"gadgets": &virtual{&workshop.Gadget{}}, "gadgets/scale": scale}
	group := &genericapiserver.APIGroupInfo{VersionedResourcesStorageMap: map[string]map[string]rest.Storage{}}
	if err := addToVersions(group, scheme, "gadgets/scale", scale, resources); err != nil {
		t.Fatal(err)
	}
	if got := group.VersionedResourcesStorageMap["v1"]["gadgets/scale"]; got != scale {
		t.Errorf("storage of v1 gadgets/scale: got %v, want %v", got, scale)
	}
}

// stream is a storage that connects.
type stream struct{ virtual }

func (*stream) Connect(context.Context, string, runtime.Object, rest.Responder) (http.Handler, error) {
	return nil, errors.New("not in this test")
}
func (*stream) NewConnectOptions() (runtime.Object, bool, string) { return nil, false, "" }
func (*stream) ConnectMethods() []string                          { return []string{http.MethodGet} }

// TestLongRunning: what connects a stream in any version is found, and nothing else: the rest keeps its timeout.
func TestLongRunning(t *testing.T) {
	plain, connecting := &virtual{&workshop.Gadget{}}, &stream{virtual{&workshop.Gadget{}}}
	group := &genericapiserver.APIGroupInfo{VersionedResourcesStorageMap: map[string]map[string]rest.Storage{
		"v1":  {"gadgets": plain, "gadgets/status": plain, "gadgets/log": connecting},
		"v99": {"gadgets": plain, "gadgets/log": connecting, "gadgets/exec": connecting},
	}}
	if diff := cmp.Diff([]string{"exec", "log"}, sets.List(LongRunning(group))); diff != "" {
		t.Errorf("long-running subresources (-want +got):\n%s", diff)
	}
	delete(group.VersionedResourcesStorageMap["v1"], "gadgets/log")
	delete(group.VersionedResourcesStorageMap, "v99")
	if got := LongRunning(group); len(got) != 0 {
		t.Errorf("long-running subresources without streams: got %v, want none", got)
	}
}

type failing struct{ err error }

func (f failing) GetRESTOptions(schema.GroupResource, runtime.Object) (generic.RESTOptions, error) {
	return generic.RESTOptions{}, f.err
}

// TestStoreError: a store that cannot be made stops the server.
func TestStoreError(t *testing.T) {
	want := errors.New("no etcd")
	if group, _, err := newGroup(t, failing{want}); !errors.Is(err, want) || group != nil {
		t.Errorf("got %v and error %v, want none and %v", group, err, want)
	}
}
