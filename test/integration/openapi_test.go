// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"example.com/extension-apiserver/pkg/envtest"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"

	"example.com/extension-apiserver/sample/apis/workshop/install"
)

const openAPIProtobuf = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"

// openAPIIndex returns the paths of a server's OpenAPI v3 documents, with their hashes, by name.
func openAPIIndex(t *testing.T, server envtest.Endpoint) map[string]string {
	t.Helper()
	var index struct {
		Paths map[string]struct{ ServerRelativeURL string }
	}
	if err := json.Unmarshal(server.Get(t, "/openapi/v3", nil).Body, &index); err != nil {
		t.Fatal(err)
	}
	paths := map[string]string{}
	for name, entry := range index.Paths {
		paths[name] = entry.ServerRelativeURL
	}
	return paths
}

// groupVersionPaths returns the names of the documents of the API itself.
func groupVersionPaths() []string {
	var names []string
	for _, gv := range install.GroupVersions() {
		names = append(names, "apis/"+gv.String())
	}
	return names
}

// TestOpenAPIDeterministic checks that two servers return the same documents, byte for byte.
// Otherwise kube-apiserver would merge the documents again each minute, and each replica would
// have its own hashes.
func TestOpenAPIDeterministic(t *testing.T) {
	s := serve(t, "--kubeconfig="+sharedKubeconfig(t))
	first := direct(t, shared)
	second := envtest.Endpoint{Client: first.Client, URL: s.url}
	shared.Eventually(t, "the second server", envtest.WaitTimeout, existing(second, "/readyz"))
	index := openAPIIndex(t, first)
	if diff := cmp.Diff(index, openAPIIndex(t, second)); diff != "" {
		t.Errorf("index (-first server +second):\n%s", diff)
	}
	for _, path := range append(slices.Collect(maps.Values(index)), "/openapi/v2") {
		for _, accept := range []string{"application/json", openAPIProtobuf} {
			if accept == openAPIProtobuf {
				accept = strings.ReplaceAll(accept, "v2", path[len("/openapi/"):len("/openapi/v2")])
			}
			header := http.Header{"Accept": {accept}}
			a, b := first.Get(t, path, header), second.Get(t, path, header)
			if got := a.Header.Get("Content-Type"); got != accept {
				t.Errorf("%s: Content-Type %s, want %s", path, got, accept)
			}
			if !bytes.Equal(a.Body, b.Body) || a.Header.Get("ETag") != b.Header.Get("ETag") {
				t.Errorf("%s as %s: %d bytes with ETag %s, and %d with %s; want them equal",
					path, accept, len(a.Body), a.Header.Get("ETag"), len(b.Body), b.Header.Get("ETag"))
			}
			if bytes.Contains(a.Body, []byte(runtime.APIVersionInternal)) {
				t.Errorf("%s as %s has a version %s, which is not served", path, accept, runtime.APIVersionInternal)
			}
		}
	}
}

// TestOpenAPIClient checks that the protobuf encoding of v2, which client-go requests, has the
// same definitions as the JSON.
func TestOpenAPIClient(t *testing.T) {
	client, err := discovery.NewDiscoveryClientForConfig(shared.Servers[0].ConfigAs(shared, shared.Admin(t)))
	if err != nil {
		t.Fatal(err)
	}
	doc, err := client.OpenAPISchema()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, definition := range doc.GetDefinitions().GetAdditionalProperties() {
		got = append(got, definition.GetName())
	}
	slices.Sort(got)
	want := slices.Sorted(maps.Keys(readOpenAPI(t, direct(t, shared), "/openapi/v2").Definitions))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("definitions (-JSON +protobuf):\n%s", diff)
	}
}

// TestOpenAPICaching checks that a client that has a document need not fetch it again.
func TestOpenAPICaching(t *testing.T) {
	for name, server := range map[string]envtest.Endpoint{"direct": direct(t, shared),
		"through kube-apiserver": aggregator(t, shared)} {
		paths := []string{"/openapi/v2"}
		index := openAPIIndex(t, server)
		for _, name := range groupVersionPaths() {
			paths = append(paths, index[name], "/openapi/v3/"+name)
		}
		if name == "direct" {
			// kube-apiserver serves its index without an ETag.
			paths = append(paths, "/openapi/v3")
		}
		for _, path := range paths {
			a := server.Get(t, path, nil)
			etag := a.Header.Get("ETag")
			again := server.Do(t, http.MethodGet, path, http.Header{"If-None-Match": {etag}}, nil)
			if etag == "" || again.Status != http.StatusNotModified || len(again.Body) > 0 {
				t.Errorf("%s %s: ETag %q; with it %d and %d bytes, want 304 and none", name, path, etag, again.Status,
					len(again.Body))
			}
		}
	}
}

// TestOpenAPIOutdatedHash checks requests with an outdated hash. After an update of the extension
// API server, the index of kube-apiserver has the old hashes for up to a minute. Clients that use
// them get the current document, as they do from kube-apiserver itself, and no 502. The extension
// API server does not redirect direct clients either.
func TestOpenAPIOutdatedHash(t *testing.T) {
	for _, name := range groupVersionPaths() {
		got := direct(t, shared).Do(t, http.MethodGet, "/openapi/v3/"+name+"?hash=0123", nil, nil)
		if got.Status != http.StatusOK {
			t.Errorf("%s by an outdated hash from our server itself: %d, want 200", name, got.Status)
		}
	}
	server := aggregator(t, shared)
	server.Client.CheckRedirect = nil // follow, as clients do: kube-apiserver redirects to the current hash of its own
	for _, name := range append(groupVersionPaths(), "apis/apps/v1") {
		want := server.Get(t, "/openapi/v3/"+name, nil)
		got := server.Do(t, http.MethodGet, "/openapi/v3/"+name+"?hash=0123&timeout=32s", nil, nil)
		if got.Status != http.StatusOK || !bytes.Equal(want.Body, got.Body) {
			t.Errorf("%s by an outdated hash: %d with %d bytes (%.100s), want 200 with the current %d", name,
				got.Status, len(got.Body), got.Body, len(want.Body))
		}
	}
}

// openAPI holds the parts of a document that the tests check, v2 or v3.
type openAPI struct {
	Paths       map[string]map[string]any
	Definitions map[string]map[string]any
	Components  struct{ Schemas map[string]map[string]any }
}

func readOpenAPI(t *testing.T, server envtest.Endpoint, path string) openAPI {
	t.Helper()
	var doc openAPI
	if err := json.Unmarshal(server.Get(t, path, nil).Body, &doc); err != nil {
		t.Fatal(err)
	}
	return doc
}

// TestOpenAPIMerged checks that kube-apiserver's documents contain the extension API server's,
// unchanged. kube-apiserver must not have renamed a shared type, which it does if the definitions
// differ.
func TestOpenAPIMerged(t *testing.T) {
	ours, merged := direct(t, shared), aggregator(t, shared)
	for _, name := range groupVersionPaths() {
		path := openAPIIndex(t, merged)[name]
		if path == "" || path != openAPIIndex(t, ours)[name] {
			t.Errorf("OpenAPI v3 index of kube-apiserver: %s is at %q, want %q", name, path,
				openAPIIndex(t, ours)[name])
			continue
		}
		if !bytes.Equal(ours.Get(t, path, nil).Body, merged.Get(t, path, nil).Body) {
			t.Errorf("%s through kube-apiserver is another than at our server", path)
		}
	}
	if envtest.Minor() != envtest.DefaultMinor {
		// In OpenAPI v2, kube-apiserver renames library definitions that differ from its own,
		// such as Scale.
		return
	}
	part, whole := readOpenAPI(t, ours, "/openapi/v2"), readOpenAPI(t, merged, "/openapi/v2")
	for path, item := range part.Paths {
		// kube-apiserver serves the discovery of the groups itself.
		if diff := cmp.Diff(item, whole.Paths[path]); strings.Count(path, "/") > 3 && diff != "" {
			t.Errorf("OpenAPI v2 of %s (-ours +kube-apiserver's):\n%s", path, diff)
		}
	}
	for name, definition := range part.Definitions {
		// These kinds are in every group, and kube-apiserver's documents list all groups.
		delete(definition, "x-kubernetes-group-version-kind")
		delete(whole.Definitions[name], "x-kubernetes-group-version-kind")
		// For its own kinds, kube-apiserver keeps its own definition if the libraries have
		// another minor version.
		if strings.HasPrefix(name, "io.k8s.") && envtest.Minor() != envtest.DefaultMinor {
			continue
		}
		if diff := cmp.Diff(definition, whole.Definitions[name]); diff != "" {
			t.Errorf("OpenAPI v2 definition %s (-ours +kube-apiserver's):\n%s", name, diff)
		}
		if _, renamed := whole.Definitions[name+"_v2"]; renamed {
			t.Errorf("kube-apiserver had to rename our %s: make its k8s.io libraries and ours the same version", name)
		}
	}
}

// TestOpenAPIComplete checks that each operation has its action, kind and description, and that
// each type and field has a description. kubectl explain, kubectl apply and generated clients
// have no other source.
func TestOpenAPIComplete(t *testing.T) {
	server := aggregator(t, shared)
	for _, gv := range install.GroupVersions() {
		doc := readOpenAPI(t, server, "/openapi/v3/apis/"+gv.String())
		root := "/apis/" + gv.String() + "/"
		for path, item := range doc.Paths {
			for method, operation := range item {
				o, ok := operation.(map[string]any)
				if !ok || path == root {
					continue
				}
				gvk, _ := o["x-kubernetes-group-version-kind"].(map[string]any)
				if o["x-kubernetes-action"] == nil || gvk["kind"] == nil || o["operationId"] == nil ||
					o["description"] == nil {
					t.Errorf("%s %s: action %v, kind %v, operationId %v, description %v; want all of them",
						method, path, o["x-kubernetes-action"], gvk, o["operationId"], o["description"])
				}
			}
		}
		kinds := map[string]bool{}
		for name, schema := range doc.Components.Schemas {
			for _, gvk := range asList(schema["x-kubernetes-group-version-kind"]) {
				if gvk := gvk.(map[string]any); gvk["group"] == gv.Group && gvk["version"] == gv.Version {
					kinds[gvk["kind"].(string)] = true
				}
			}
			if strings.HasPrefix(name, "io.k8s.") {
				continue
			}
			if schema["description"] == nil {
				t.Errorf("%s: schema %s has no description", gv, name)
			}
			properties, _ := schema["properties"].(map[string]any)
			for field, property := range properties {
				if description, _ := property.(map[string]any)["description"].(string); description == "" {
					t.Errorf("%s: %s.%s has no description", gv, name, field)
				}
			}
		}
		for _, s := range surfaces {
			if typedScheme.Recognizes(gv.WithKind(s.resource.Kind)) && !kinds[s.resource.Kind] {
				t.Errorf("%s: no schema is for the kind %s; kinds are %v", gv, s.resource.Kind, kinds)
			}
		}
	}
}

func asList(value any) []any {
	list, _ := value.([]any)
	return list
}
