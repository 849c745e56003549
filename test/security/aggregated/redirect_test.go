// SPDX-License-Identifier: Apache-2.0

package aggregated

import (
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"example.com/extension-apiserver/pkg/envtest"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"

	"example.com/extension-apiserver/sample/apis/workshop/install"
)

// TestS42NoRedirect crawls all paths that the server serves, and similar paths, and checks that
// none redirects. A redirect would send clients with their credentials, or kube-apiserver itself,
// to a place that the response chooses (CVE-2022-3172).
func TestS42NoRedirect(t *testing.T) {
	namespace := shared.NewNamespace(t)
	newWidget(t, shared, namespace, "w")
	newGadget(t, shared, namespace)
	master := &user.DefaultInfo{Name: "crawler", Groups: []string{user.SystemPrivilegedGroup}}
	server, front := direct(t, shared, master), admin(t, shared)
	paths := crawl(t, server, namespace)
	if want := current + "/namespaces/" + namespace + "/widgets/w/status"; !slices.Contains(paths, want) {
		t.Fatalf("the crawl did not find %s among its %d paths", want, len(paths))
	}
	served := 0
	// Nothing changes: writes have no body, and are dry runs.
	const query = "?timeoutSeconds=1&dryRun=All"
	for _, path := range paths {
		if isServed(t, server, path) {
			served++
		}
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"} {
			notRedirected(t, server, method, path+query)
			if strings.HasPrefix(path, "/apis/"+group+"/") {
				notRedirected(t, front, method, path+query)
			}
		}
		for _, near := range []string{path + "/", "/" + path, path + "/.", path + "/../x", path + "%2f",
			strings.ToUpper(path), path + "?to=//example.net"} {
			notRedirected(t, server, "GET", near)
		}
	}
	if served < len(paths)*3/4 {
		t.Errorf("%d of %d paths return 2xx; want most, or the crawl shows little", served, len(paths))
	}
}

// notRedirected fails for any response of 3xx. No request is conditional.
func notRedirected(t *testing.T, server envtest.Endpoint, method, path string) {
	t.Helper()
	resp := server.Open(t, method, path, nil, nil)
	if err := resp.Body.Close(); err != nil {
		t.Error(err)
	}
	if resp.StatusCode/100 == 3 || resp.Header.Get("Location") != "" {
		t.Errorf("%s %s: %s to %q; want no redirect", method, path, resp.Status, resp.Header.Get("Location"))
	}
}

func isServed(t *testing.T, server envtest.Endpoint, path string) bool {
	t.Helper()
	resp := server.Open(t, http.MethodGet, path+"?timeoutSeconds=1", nil, nil)
	defer resp.Body.Close()
	return resp.StatusCode/100 == 2
}

var parameter = regexp.MustCompile(`\{[a-z]+\}`)

// crawl returns the paths in the index and in the OpenAPI documents, with existing objects as
// parameters.
func crawl(t *testing.T, server envtest.Endpoint, namespace string) []string {
	t.Helper()
	var index struct{ Paths []string }
	if err := json.Unmarshal(server.Must(t, http.MethodGet, "/", nil, nil).Body, &index); err != nil {
		t.Fatal(err)
	}
	found := sets.New(index.Paths...).Insert("/", "/version", "/nowhere", "/debug/pprof", "/openapi", "/logs")
	documents := []string{"/openapi/v2"}
	for _, gv := range install.GroupVersions() {
		documents = append(documents, "/openapi/v3/apis/"+gv.String())
	}
	for _, document := range documents {
		var doc struct{ Paths map[string]any }
		if err := json.Unmarshal(server.Must(t, http.MethodGet, document, http.Header{"Accept": {"application/json"}},
			nil).Body, &doc); err != nil {
			t.Fatal(err)
		}
		found.Insert(document)
		for path := range doc.Paths {
			name := "w"
			if strings.Contains(path, "gadgets") {
				name = namespace
			}
			path = strings.NewReplacer("{namespace}", namespace, "{name}", name).Replace(path)
			found.Insert(parameter.ReplaceAllString(path, "x"))
		}
	}
	return sets.List(found)
}
