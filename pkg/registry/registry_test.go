// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"example.com/extension-apiserver/pkg/apis/identity"
	"example.com/extension-apiserver/pkg/registry/identityreview"
	"example.com/extension-apiserver/test/fixture/api"
	v1 "example.com/extension-apiserver/test/fixture/api/v1"
	"example.com/extension-apiserver/test/fixture/registry/item"
)

// kinds are one with a store and one without.
var kinds = []NewStorage{item.NewStorage, identityreview.NewStorage}

// counting makes stores that have no storage behind them, and counts them.
type counting struct{ stores int }

func (c *counting) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	c.stores++
	return Unconnected{}.GetRESTOptions(resource, example)
}

// newScheme knows the kinds in v1, and more versions that know nothing but Item.
func newScheme(t *testing.T, more ...string) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	utilruntime.Must(api.AddToScheme(scheme))
	utilruntime.Must(v1.AddToScheme(scheme))
	identity.AddToScheme(scheme, v1.SchemeGroupVersion)
	versions := []schema.GroupVersion{v1.SchemeGroupVersion}
	for _, version := range more {
		gv := schema.GroupVersion{Group: api.GroupName, Version: version}
		scheme.AddKnownTypes(gv, &v1.Item{}, &v1.ItemList{})
		metav1.AddToGroupVersion(scheme, gv)
		versions = append(versions, gv)
	}
	utilruntime.Must(scheme.SetVersionPriority(versions...))
	return scheme
}

func newGroup(scheme *runtime.Scheme, getter generic.RESTOptionsGetter) (*genericapiserver.APIGroupInfo, error) {
	return NewAPIGroupInfo(api.GroupName, kinds, scheme, serializer.NewCodecFactory(scheme), getter, nil)
}

// TestVersions: each version serves the kinds that it knows, and no others.
func TestVersions(t *testing.T) {
	scheme := newScheme(t, "v99")
	group, err := newGroup(scheme, Unconnected{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(scheme.PrioritizedVersionsForGroup(api.GroupName), group.PrioritizedVersions); diff != "" {
		t.Errorf("versions in discovery (-want +got):\n%s", diff)
	}
	got := map[string][]string{}
	for version, resources := range group.VersionedResourcesStorageMap {
		got[version] = slices.Sorted(maps.Keys(resources))
	}
	if diff := cmp.Diff(map[string][]string{"v1": {"identityreviews", "items"}, "v99": {"items"}}, got); diff != "" {
		t.Errorf("resources by version (-want +got):\n%s", diff)
	}
}

// TestOneStorePerResource: a second version costs no second watch of etcd.
func TestOneStorePerResource(t *testing.T) {
	count := func(more ...string) (int, *genericapiserver.APIGroupInfo) {
		getter := &counting{}
		group, err := newGroup(newScheme(t, more...), getter)
		if err != nil {
			t.Fatal(err)
		}
		return getter.stores, group
	}
	want, _ := count()
	got, group := count("v99")
	if got != want || got == 0 {
		t.Errorf("stores with one version more: got %d, want %d as before", got, want)
	}
	first, second := group.VersionedResourcesStorageMap["v1"]["items"], group.VersionedResourcesStorageMap["v99"]["items"]
	if first == nil || first != second {
		t.Errorf("store of items: got %p for v1 and %p for v99, want one", first, second)
	}
}

// virtual is a storage of the kind of its object.
type virtual struct{ object runtime.Object }

func (v *virtual) New() runtime.Object { return v.object }
func (*virtual) Destroy()              {}

// listed is a storage with a list.
type listed struct {
	rest.Lister
	object, list runtime.Object
}

func (l listed) New() runtime.Object     { return l.object }
func (l listed) NewList() runtime.Object { return l.list }
func (listed) Destroy()                  {}

// of is a kind that has these resources.
func of(resources map[string]rest.Storage) NewStorage {
	return func(*runtime.Scheme, generic.RESTOptionsGetter, authorizer.Authorizer) (map[string]rest.Storage, error) {
		return resources, nil
	}
}

// TestKindErrors: all mistakes in the kinds are found at start, and named.
func TestKindErrors(t *testing.T) {
	scheme := newScheme(t)
	type unknown struct{ api.Item }
	scheme.AddKnownTypeWithName(api.SchemeGroupVersion.WithKind("Unknown"), &unknown{})
	empty := schema.GroupVersion{Group: api.GroupName, Version: "v98"}
	utilruntime.Must(scheme.SetVersionPriority(v1.SchemeGroupVersion, empty))
	items := &virtual{&api.Item{}}
	for _, tc := range []struct {
		name  string
		kinds []NewStorage
		want  string
	}{
		{"subresource without parent", []NewStorage{of(map[string]rest.Storage{"items/status": items})},
			"register items/status: the same NewStorage does not make its parent resource items"},
		{"kind of nobody", []NewStorage{of(map[string]rest.Storage{"things": &virtual{&metav1.PartialObjectMetadata{}}})},
			"register things: no kind is registered for the type v1.PartialObjectMetadata"},
		{"kind of no version", []NewStorage{of(map[string]rest.Storage{"unknowns": &virtual{&unknown{}}})},
			"register unknowns: no served version knows the kind Unknown"},
		{"resource twice", []NewStorage{of(map[string]rest.Storage{"items": items}), of(map[string]rest.Storage{"items": items})},
			"register items: two kinds have this resource"},
		{"kind without its list", []NewStorage{of(map[string]rest.Storage{"items": listed{object: &api.Item{}, list: &metav1.PartialObjectMetadataList{}}})},
			"register items: no kind is registered for the type v1.PartialObjectMetadataList"},
		{"list that is none", []NewStorage{of(map[string]rest.Storage{"items": listed{object: &api.Item{}, list: &api.Item{}}})},
			"register items: NewList returns *api.Item, which is not a list"},
		{"version that no kind knows", []NewStorage{of(map[string]rest.Storage{"items": items})}, "no kind is served in version " + empty.String()},
		{"two", []NewStorage{of(map[string]rest.Storage{"a/status": items}), of(map[string]rest.Storage{"b/status": items})},
			"[register a/status: the same NewStorage does not make its parent resource a, register b/status: the same NewStorage does not make its parent resource b]"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			group, err := NewAPIGroupInfo(api.GroupName, tc.kinds, scheme, serializer.NewCodecFactory(scheme), Unconnected{}, nil)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got error %v, want %s", err, tc.want)
			}
			if group != nil {
				t.Errorf("served in spite of the error: %v", group)
			}
		})
	}
}

// TestSubresourceFollowsItsParent: its own kind can be one that no version of the group knows, such as autoscaling's Scale.
func TestSubresourceFollowsItsParent(t *testing.T) {
	scale := &virtual{&metav1.PartialObjectMetadata{}}
	group := &group{versions: []schema.GroupVersion{v1.SchemeGroupVersion}, scheme: newScheme(t), byVersion: map[string]map[string]rest.Storage{}}
	if err := group.add("items/scale", map[string]rest.Storage{"items": &virtual{&api.Item{}}, "items/scale": scale}); err != nil {
		t.Fatal(err)
	}
	if got := group.byVersion["v1"]["items/scale"]; got != scale {
		t.Errorf("storage of v1 items/scale: got %v, want %v", got, scale)
	}
}

type failing struct{ err error }

func (f failing) GetRESTOptions(schema.GroupResource, runtime.Object) (generic.RESTOptions, error) {
	return generic.RESTOptions{}, f.err
}

// TestStoreError: a store that cannot be made stops the server.
func TestStoreError(t *testing.T) {
	want := errors.New("no etcd")
	if group, err := newGroup(newScheme(t), failing{want}); !errors.Is(err, want) || group != nil {
		t.Errorf("got %v and error %v, want none and %v", group, err, want)
	}
}
