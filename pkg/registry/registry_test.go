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
	"example.com/extension-apiserver/sample/apis/workshop"
	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
)

// kinds contains one kind with a store and one without.
var kinds = []NewStorage{Kind[*v1.Gadget]{ClusterScoped: true}.NewStorage, identityreview.NewStorage}

// counting creates stores without a storage backend and counts them.
type counting struct{ stores int }

func (c *counting) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	c.stores++
	return Unconnected{}.GetRESTOptions(resource, example)
}

// newScheme registers all kinds in v1, and only Gadget in the additional versions.
func newScheme(t *testing.T, more ...string) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	utilruntime.Must(v1.AddToScheme(scheme))
	identity.AddToScheme(scheme, v1.SchemeGroupVersion)
	versions := []schema.GroupVersion{v1.SchemeGroupVersion}
	for _, version := range more {
		gv := schema.GroupVersion{Group: workshop.GroupName, Version: version}
		scheme.AddKnownTypes(gv, &v1.Gadget{}, &v1.GadgetList{})
		metav1.AddToGroupVersion(scheme, gv)
		versions = append(versions, gv)
	}
	utilruntime.Must(scheme.SetVersionPriority(versions...))
	return scheme
}

func newGroup(scheme *runtime.Scheme, getter generic.RESTOptionsGetter) (*genericapiserver.APIGroupInfo, error) {
	return NewAPIGroupInfo(workshop.GroupName, kinds, scheme, serializer.NewCodecFactory(scheme), getter, nil)
}

// TestVersions: each version serves exactly the kinds that it registers.
func TestVersions(t *testing.T) {
	scheme := newScheme(t, "v99")
	group, err := newGroup(scheme, Unconnected{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(scheme.PrioritizedVersionsForGroup(workshop.GroupName), group.PrioritizedVersions); diff != "" {
		t.Errorf("versions in discovery (-want +got):\n%s", diff)
	}
	got := map[string][]string{}
	for version, resources := range group.VersionedResourcesStorageMap {
		got[version] = slices.Sorted(maps.Keys(resources))
	}
	if diff := cmp.Diff(map[string][]string{"v1": {"gadgets", "identityreviews"}, "v99": {"gadgets"}},
		got); diff != "" {
		t.Errorf("resources by version (-want +got):\n%s", diff)
	}
}

// TestOneStorePerResource: an additional version does not create an additional watch of etcd.
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
	first, second := group.VersionedResourcesStorageMap["v1"]["gadgets"],
		group.VersionedResourcesStorageMap["v99"]["gadgets"]
	if first == nil || first != second {
		t.Errorf("store of gadgets: got %p for v1 and %p for v99, want one", first, second)
	}
}

// virtual is a storage whose New returns the object.
type virtual struct{ object runtime.Object }

func (v *virtual) New() runtime.Object { return v.object }
func (*virtual) Destroy()              {}

// listed is a storage that also supports lists.
type listed struct {
	rest.Lister
	object, list runtime.Object
}

func (l listed) New() runtime.Object     { return l.object }
func (l listed) NewList() runtime.Object { return l.list }
func (listed) Destroy()                  {}

// of returns the NewStorage of a kind with these resources.
func of(resources map[string]rest.Storage) NewStorage {
	return func(*runtime.Scheme, generic.RESTOptionsGetter, authorizer.Authorizer) (map[string]rest.Storage, error) {
		return resources, nil
	}
}

// TestKindErrors: NewAPIGroupInfo reports all errors in the kinds.
func TestKindErrors(t *testing.T) {
	scheme := newScheme(t)
	type unknown struct{ v1.Gadget }
	scheme.AddKnownTypeWithName(schema.GroupVersion{Group: workshop.GroupName, Version: runtime.APIVersionInternal}.WithKind("Unknown"), &unknown{})
	empty := schema.GroupVersion{Group: workshop.GroupName, Version: "v98"}
	utilruntime.Must(scheme.SetVersionPriority(v1.SchemeGroupVersion, empty))
	gadgets := &virtual{&v1.Gadget{}}
	for _, tc := range []struct {
		name  string
		kinds []NewStorage
		want  string
	}{
		{"subresource without parent", []NewStorage{of(map[string]rest.Storage{"gadgets/status": gadgets})},
			"register gadgets/status: the same NewStorage does not make its parent resource gadgets"},
		{"kind of nobody", []NewStorage{of(
			map[string]rest.Storage{"things": &virtual{&metav1.PartialObjectMetadata{}}})},
			"register things: no kind is registered for the type v1.PartialObjectMetadata"},
		{"kind of no version", []NewStorage{of(map[string]rest.Storage{"unknowns": &virtual{&unknown{}}})},
			"register unknowns: no served version knows the kind Unknown"},
		{"resource twice", []NewStorage{of(map[string]rest.Storage{"gadgets": gadgets}),
			of(map[string]rest.Storage{"gadgets": gadgets})},
			"register gadgets: two kinds have this resource"},
		{"kind without its list", []NewStorage{of(map[string]rest.Storage{"gadgets": listed{object: &v1.Gadget{},
			list: &metav1.PartialObjectMetadataList{}}})},
			"register gadgets: no kind is registered for the type v1.PartialObjectMetadataList"},
		{"list that is none", []NewStorage{of(map[string]rest.Storage{"gadgets": listed{object: &v1.Gadget{},
			list: &v1.Gadget{}}})},
			"register gadgets: NewList returns *v1.Gadget, which is not a list"},
		{"version that no kind knows", []NewStorage{of(map[string]rest.Storage{"gadgets": gadgets})},
			"no kind is served in version " + empty.String()},
		{"two", []NewStorage{of(map[string]rest.Storage{"a/status": gadgets}),
			of(map[string]rest.Storage{"b/status": gadgets})},
			"[register a/status: the same NewStorage does not make its parent resource a, register b/status: the " +
				"same NewStorage does not make its parent resource b]"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			group, err := NewAPIGroupInfo(workshop.GroupName, tc.kinds, scheme, serializer.NewCodecFactory(scheme),
				Unconnected{}, nil)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got error %v, want %s", err, tc.want)
			}
			if group != nil {
				t.Errorf("served in spite of the error: %v", group)
			}
		})
	}
}

// TestSubresourceFollowsItsParent: a subresource is served in the versions of its parent, even if
// no version of the group registers its own kind, such as autoscaling/v1 Scale.
func TestSubresourceFollowsItsParent(t *testing.T) {
	scale := &virtual{&metav1.PartialObjectMetadata{}}
	group := &group{versions: []schema.GroupVersion{v1.SchemeGroupVersion}, scheme: newScheme(t),
		byVersion: map[string]map[string]rest.Storage{}, kinds: map[string]string{}}
	if err := group.add("gadgets/scale", map[string]rest.Storage{"gadgets": &virtual{&v1.Gadget{}},
		"gadgets/scale": scale}); err != nil {
		t.Fatal(err)
	}
	if got := group.byVersion["v1"]["gadgets/scale"]; got != scale {
		t.Errorf("storage of v1 gadgets/scale: got %v, want %v", got, scale)
	}
}

type failing struct{ err error }

func (f failing) GetRESTOptions(schema.GroupResource, runtime.Object) (generic.RESTOptions, error) {
	return generic.RESTOptions{}, f.err
}

// TestStoreError: NewAPIGroupInfo returns the error of a store that cannot be created.
func TestStoreError(t *testing.T) {
	want := errors.New("no etcd")
	if group, err := newGroup(newScheme(t), failing{want}); !errors.Is(err, want) || group != nil {
		t.Errorf("got %v and error %v, want none and %v", group, err, want)
	}
}
