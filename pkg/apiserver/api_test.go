// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	openapicommon "k8s.io/kube-openapi/pkg/common"

	"example.com/extension-apiserver/pkg/embeddedetcd"
	"example.com/extension-apiserver/pkg/registry"
	"example.com/extension-apiserver/sample/apis/workshop"
	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
	"example.com/extension-apiserver/sample/apis/workshop/v1beta1"
	"example.com/extension-apiserver/sample/openapi"
	"example.com/extension-apiserver/sample/registry/workshop/gadget"
)

// testAPI has two kinds, one with a store and one without.
var testAPI = API{
	Name:         "extension-apiserver",
	Groups:       []Group{testGroup},
	OpenAPI:      openapi.GetOpenAPIDefinitions,
	EmbeddedEtcd: embeddedetcd.Server{},
}

var testGroup = Group{
	Name:           workshop.GroupName,
	AddToScheme:    addToScheme,
	StorageVersion: "v1",
	IdentityReview: "v1",
	Kinds:          []registry.NewStorage{gadget.Kind.NewStorage},
}

// withGroup returns testAPI with a changed group.
func withGroup(change func(*Group)) API {
	api, group := testAPI, testGroup
	change(&group)
	api.Groups = []Group{group}
	return api
}

func addToScheme(scheme *runtime.Scheme) error {
	return errors.Join(v1.AddToScheme(scheme), scheme.SetVersionPriority(v1.SchemeGroupVersion))
}

// mustOptions returns the options of a valid API.
func mustOptions(api API) *Options {
	o, err := NewOptions(api)
	if err != nil {
		panic(err)
	}
	return o
}

// testCodecs are the codecs of testAPI.
var testCodecs = mustOptions(testAPI).codecs

// TestValidateAPI: Validate reports all errors in an API.
func TestValidateAPI(t *testing.T) {
	if err := testAPI.Validate(); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name   string
		change func(*API, *Group)
		want   []string
	}{
		{"nothing set", func(a *API, _ *Group) { *a = API{} },
			[]string{"the name is \"\"", "OpenAPI is required", "at least one group is required"}},
		{"nothing set in a group", func(_ *API, g *Group) { *g = Group{} },
			[]string{"the group is \"\"", "AddToScheme of the group \"\" is required"}},
		{"two groups of one name", func(a *API, g *Group) { a.Groups = append(a.Groups, *g) },
			[]string{"duplicate group \"" + workshop.GroupName + "\""}},
		{"name", func(a *API, _ *Group) { a.Name = "Bad_Name" }, []string{"the name is \"Bad_Name\""}},
		{"group without a dot", func(_ *API, g *Group) { g.Name = "onelabel" },
			[]string{"must contain a dot, such as onelabel.example.com",
				"registers no version of the group \"onelabel\""}},
		{"group of Kubernetes", func(_ *API, g *Group) { g.Name = "bad.k8s.io" }, []string{"reserved for Kubernetes"}},
		{"group of Kubernetes, older", func(_ *API, g *Group) { g.Name = "kubernetes.io" },
			[]string{"reserved for Kubernetes"}},
		{"no stored version", func(_ *API, g *Group) { g.StorageVersion = "" },
			[]string{"StorageVersion is required: one of [" + v1.SchemeGroupVersion.String() + "]"}},
		{"stored version that is not served", func(_ *API, g *Group) { g.StorageVersion = "v7" },
			[]string{"StorageVersion is \"v7\": must be one of"}},
		{"identity reviews in a version that is not served", func(_ *API, g *Group) { g.IdentityReview = "v7" },
			[]string{"IdentityReview is \"v7\": must be one of"}},
		{"own kind IdentityReview", func(_ *API, g *Group) {
			g.AddToScheme = func(scheme *runtime.Scheme) error {
				scheme.AddKnownTypeWithName(v1.SchemeGroupVersion.WithKind("IdentityReview"), &v1.Gadget{})
				return addToScheme(scheme)
			}
		}, []string{"AddToScheme registers a kind IdentityReview"}},
		{"registration fails", func(_ *API, g *Group) {
			g.AddToScheme = func(*runtime.Scheme) error { return fmt.Errorf("no such type") }
		}, []string{"no such type"}},
		{"no definition of a kind", func(a *API, _ *Group) {
			a.OpenAPI = without(a.OpenAPI, v1.Gadget{}.OpenAPIModelName())
		}, []string{"OpenAPI has no definition com.example.workshop.v1.Gadget for Gadget in workshop.example.com/v1",
			"OpenAPI has no definition com.example.workshop.v1.Gadget, which " +
				"com.example.workshop.v1.GadgetList references"}},
		{"no definition of a field's type", func(a *API, _ *Group) {
			a.OpenAPI = without(a.OpenAPI, v1.WidgetPart{}.OpenAPIModelName())
		}, []string{"OpenAPI has no definition com.example.workshop.v1.WidgetPart, which " +
			"com.example.workshop.v1.WidgetSpec references"}},
		{"no kinds", func(_ *API, g *Group) { g.Kinds = nil }, []string{"has no kinds"}},
		{"kind twice", func(_ *API, g *Group) { g.Kinds = append(g.Kinds, gadget.Kind.NewStorage) },
			[]string{"register gadgets: two kinds have this resource"}},
		{"version that no kind knows, with a bad name", func(_ *API, g *Group) {
			g.AddToScheme = func(scheme *runtime.Scheme) error {
				next := schema.GroupVersion{Group: workshop.GroupName, Version: "next"}
				metav1.AddToGroupVersion(scheme, next)
				return errors.Join(addToScheme(scheme), scheme.SetVersionPriority(v1.SchemeGroupVersion, next))
			}
		}, []string{"the version is \"next\"", "no kind is served in version " + workshop.GroupName + "/next"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			api, group := testAPI, testGroup
			api.Groups = []Group{group}
			tc.change(&api, &api.Groups[0])
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

// without returns the definitions without the named one.
func without(definitions openapicommon.GetOpenAPIDefinitions, name string) openapicommon.GetOpenAPIDefinitions {
	return func(ref openapicommon.ReferenceCallback) map[string]openapicommon.OpenAPIDefinition {
		all := maps.Clone(definitions(ref))
		delete(all, name)
		return all
	}
}

// TestTwoServers: servers of different APIs run in one process, and each serves only its own
// groups.
func TestTwoServers(t *testing.T) {
	first, second := testAPI, testAPI
	v1alpha7 := schema.GroupVersion{Group: "second.example.com", Version: "v1alpha7"}
	second.Name = "second-apiserver"
	second.Groups = []Group{testGroup, {
		Name: v1alpha7.Group,
		AddToScheme: func(scheme *runtime.Scheme) error {
			scheme.AddKnownTypes(v1alpha7, &v1beta1.Widget{}, &v1beta1.WidgetList{})
			metav1.AddToGroupVersion(scheme, v1alpha7)
			return scheme.SetVersionPriority(v1alpha7)
		},
		StorageVersion: v1alpha7.Version,
		Kinds:          []registry.NewStorage{registry.Kind[*v1beta1.Widget]{ClusterScoped: true}.NewStorage},
	}}
	paths := map[schema.GroupVersion]string{}
	for _, gv := range second.GroupVersions() {
		paths[gv] = "/apis/" + gv.String() + "/" + map[string]string{"v1": "gadgets", "v1alpha7": "widgets"}[gv.Version]
	}
	clients := map[string]*offlineClient{}
	for _, api := range []API{first, second} {
		if err := api.Validate(); err != nil {
			t.Fatal(err)
		}
		clients[api.Name] = startOffline(t, api, func(*serverConfig) {}, map[string]http.HandlerFunc{
			"/panic": func(http.ResponseWriter, *http.Request) { panic("as told") },
		}).client("HTTP/2.0")
		defer clients[api.Name].CloseIdleConnections()
		for _, gv := range api.GroupVersions() {
			// The same name in both groups shows that they share no keys.
			clients[api.Name].want(t, http.MethodPost, paths[gv],
				fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":"g"},"spec":{"purpose":"none","model":"m"}}`, gv,
					map[string]string{"v1": "Gadget", "v1alpha7": "Widget"}[gv.Version]),
				"201")
		}
	}
	for name, client := range clients {
		for gv, path := range paths {
			want := "200"
			if name == first.Name && gv == v1alpha7 {
				want = "404"
			}
			client.want(t, http.MethodGet, path+"/g", "", want)
		}
	}
	// The servers of a process share one list of metrics, to which each adds its own counter.
	panics := func(name string) string {
		t.Helper()
		found := regexp.MustCompile(`(?m)^` + strings.ReplaceAll(name, "-", "_") +
			`_panics_total (\S+)$`).FindStringSubmatch(clients[first.Name].get(t, "/metrics"))
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
