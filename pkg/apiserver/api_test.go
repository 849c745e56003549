// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"example.com/extension-apiserver/pkg/embeddedetcd"
	"example.com/extension-apiserver/pkg/registry"
	"example.com/extension-apiserver/test/fixture/api"
	v1 "example.com/extension-apiserver/test/fixture/api/v1"
	"example.com/extension-apiserver/test/fixture/openapi"
	"example.com/extension-apiserver/test/fixture/registry/item"
)

// testAPI is one of two kinds, one with a store and one without.
var testAPI = API{
	Name:           "extension-apiserver",
	Group:          api.GroupName,
	AddToScheme:    addToScheme,
	StorageVersion: "v1",
	OpenAPI:        openapi.GetOpenAPIDefinitions,
	Kinds:          []registry.NewStorage{item.NewStorage},
	EmbeddedEtcd:   embeddedetcd.Server{},
	IdentityReview: "v1",
}

func addToScheme(scheme *runtime.Scheme) error {
	return errors.Join(api.AddToScheme(scheme), v1.AddToScheme(scheme), scheme.SetVersionPriority(v1.SchemeGroupVersion))
}

// testCodecs are those of testAPI.
var testCodecs = NewOptions(testAPI).codecs

// TestValidateAPI: everything that is wrong with an API is said at once, before anything is started.
func TestValidateAPI(t *testing.T) {
	if err := testAPI.Validate(); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name   string
		change func(*API)
		want   []string
	}{
		{"nothing set", func(a *API) { *a = API{} }, []string{"the name is \"\"", "the group is \"\"", "OpenAPI is not set", "AddToScheme is not set"}},
		{"name", func(a *API) { a.Name = "Bad_Name" }, []string{"the name is \"Bad_Name\""}},
		{"group without a dot", func(a *API) { a.Group = "onelabel" }, []string{"expected one with a dot, such as onelabel.example.com", "registers no version of the group \"onelabel\""}},
		{"group of Kubernetes", func(a *API) { a.Group = "bad.k8s.io" }, []string{"reserved for Kubernetes"}},
		{"group of Kubernetes, older", func(a *API) { a.Group = "kubernetes.io" }, []string{"reserved for Kubernetes"}},
		{"no stored version", func(a *API) { a.StorageVersion = "" },
			[]string{"StorageVersion is not set, expected one of [" + v1.SchemeGroupVersion.String() + "]"}},
		{"stored version that is not served", func(a *API) { a.StorageVersion = "v7" }, []string{"StorageVersion is \"v7\", expected one of"}},
		{"identity reviews in a version that is not served", func(a *API) { a.IdentityReview = "v7" }, []string{"IdentityReview is \"v7\", expected one of"}},
		{"own kind IdentityReview", func(a *API) {
			a.AddToScheme = func(scheme *runtime.Scheme) error {
				scheme.AddKnownTypeWithName(v1.SchemeGroupVersion.WithKind("IdentityReview"), &v1.Item{})
				return addToScheme(scheme)
			}
		}, []string{"AddToScheme registers a kind IdentityReview"}},
		{"registration fails", func(a *API) { a.AddToScheme = func(*runtime.Scheme) error { return fmt.Errorf("no such type") } }, []string{"register the kinds: no such type"}},
		{"no kinds", func(a *API) { a.Kinds = nil }, []string{"there are no kinds"}},
		{"kind twice", func(a *API) { a.Kinds = append(a.Kinds, item.NewStorage) }, []string{"register items: two kinds have this resource"}},
		{"version that no kind knows, with a bad name", func(a *API) {
			a.AddToScheme = func(scheme *runtime.Scheme) error {
				next := schema.GroupVersion{Group: api.GroupName, Version: "next"}
				metav1.AddToGroupVersion(scheme, next)
				return errors.Join(addToScheme(scheme), scheme.SetVersionPriority(v1.SchemeGroupVersion, next))
			}
		}, []string{"a version is \"next\"", "no kind is served in version " + api.GroupName + "/next"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			api := testAPI
			tc.change(&api)
			err := api.Validate()
			if err == nil {
				t.Fatal("got no error")
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got error %q, want %q in it", err, want)
				}
			}
		})
	}
}

// TestTwoServers: servers of different APIs run in one process, each with its own.
func TestTwoServers(t *testing.T) {
	first, second := testAPI, testAPI
	second.Name, second.Group = "second-apiserver", "second.example.com"
	v1alpha7 := schema.GroupVersion{Group: second.Group, Version: "v1alpha7"}
	second.StorageVersion = v1alpha7.Version
	second.AddToScheme = func(scheme *runtime.Scheme) error {
		scheme.AddKnownTypes(schema.GroupVersion{Group: second.Group, Version: runtime.APIVersionInternal}, &api.Item{}, &api.ItemList{})
		scheme.AddKnownTypes(v1alpha7, &v1.Item{}, &v1.ItemList{})
		metav1.AddToGroupVersion(scheme, v1alpha7)
		return errors.Join(addToScheme(scheme), scheme.SetVersionPriority(v1alpha7))
	}
	second.IdentityReview = ""
	paths := map[string]string{}
	clients := map[string]*offlineClient{}
	for _, api := range []API{first, second} {
		if err := api.Validate(); err != nil {
			t.Fatal(err)
		}
		gv := api.GroupVersions()[0]
		paths[api.Name] = "/apis/" + gv.String() + "/items"
		clients[api.Name] = startOffline(t, api, func(*serverConfig) {}, map[string]http.HandlerFunc{
			"/panic": func(http.ResponseWriter, *http.Request) { panic("as told") },
		}).client("HTTP/2.0")
		defer clients[api.Name].CloseIdleConnections()
		clients[api.Name].want(t, http.MethodPost, paths[api.Name], fmt.Sprintf(`{"apiVersion":%q,"kind":"Item","metadata":{"name":"g"},"spec":{"purpose":"none"}}`, gv), "201")
	}
	for name, client := range clients {
		for other, path := range paths {
			want := map[bool]string{true: "200", false: "404"}[name == other]
			client.want(t, http.MethodGet, path+"/g", "", want)
		}
	}
	// The metrics of a process are one list, to which each server adds a counter of its own.
	panics := func(name string) string {
		t.Helper()
		found := regexp.MustCompile(`(?m)^` + strings.ReplaceAll(name, "-", "_") + `_panics_total (\S+)$`).FindStringSubmatch(clients[first.Name].get(t, "/metrics"))
		if found == nil {
			t.Fatalf("%s has no metric of its panics", name)
		}
		return found[1]
	}
	before := map[string]string{first.Name: panics(first.Name), second.Name: panics(second.Name)}
	clients[second.Name].want(t, http.MethodGet, "/panic", "", "500")
	if after := panics(first.Name); after != before[first.Name] {
		t.Errorf("panics of %s after one of %s: got %s, want %s", first.Name, second.Name, after, before[first.Name])
	}
	if after := panics(second.Name); after == before[second.Name] {
		t.Errorf("panics of %s after one: got %s as before", second.Name, after)
	}
}
