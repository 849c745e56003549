// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"example.com/extension-apiserver/pkg/apitesting"
	"example.com/extension-apiserver/pkg/registry"
	"example.com/extension-apiserver/sample/apis/workshop"
	"example.com/extension-apiserver/sample/apis/workshop/install"
	validation "example.com/extension-apiserver/sample/validation/workshop"
)

// TestAPI checks that the API is valid. The server refuses to start with an invalid one.
func TestAPI(t *testing.T) {
	if err := API().Validate(); err != nil {
		t.Error(err)
	}
}

// newGroup returns the API group without storage.
func newGroup(t *testing.T) (*genericapiserver.APIGroupInfo, *runtime.Scheme) {
	t.Helper()
	scheme := runtime.NewScheme()
	utilruntime.Must(install.AddToScheme(scheme))
	utilruntime.Must(validation.AddToScheme(scheme))
	group, err := registry.NewAPIGroupInfo(workshop.GroupName, API().Groups[0].Kinds, scheme,
		serializer.NewCodecFactory(scheme), registry.Unconnected{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return group, scheme
}

// TestEveryKindIsServed checks that each version serves every kind that it defines.
func TestEveryKindIsServed(t *testing.T) {
	group, scheme := newGroup(t)
	internal := schema.GroupVersion{Group: workshop.GroupName, Version: runtime.APIVersionInternal}
	for _, gv := range install.GroupVersions() {
		var want, got []string
		for kind := range scheme.KnownTypes(internal) {
			if scheme.Recognizes(gv.WithKind(kind)) && !strings.HasSuffix(kind, "List") &&
				!strings.HasSuffix(kind, "Options") && kind != metav1.WatchEventKind {
				want = append(want, kind)
			}
		}
		for path, served := range group.VersionedResourcesStorageMap[gv.Version] {
			if strings.HasSuffix(path, "/scale") {
				continue // its kind belongs to another group
			}
			gvks, _, err := scheme.ObjectKinds(served.New())
			if err != nil {
				t.Fatal(err)
			}
			if kind := gvks[0].Kind; !slices.Contains(got, kind) {
				got = append(got, kind)
			}
		}
		slices.Sort(want)
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("kinds served as %s (-want +got):\n%s", gv, diff)
		}
	}
}

// TestRoundTrip checks that a conversion between any two versions loses no field.
func TestRoundTrip(t *testing.T) {
	apitesting.RoundTrip(t, API(), fuzzers...)
}

// fuzzers holds the fuzz functions of kinds whose fields do not accept every value. The files of
// those kinds append to it.
var fuzzers []any
