// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"example.com/extension-apiserver/pkg/envtest"
	"example.com/extension-apiserver/sample/apis/workshop/install"
)

// served returns the surfaces of the resources that a version serves, by name.
func served(gv schema.GroupVersion) []surface {
	var known []surface
	for _, s := range surfaces {
		if typedScheme.Recognizes(gv.WithKind(s.resource.Kind)) {
			known = append(known, s)
		}
	}
	slices.SortFunc(known, func(a, b surface) int { return strings.Compare(a.resource.Name, b.resource.Name) })
	return known
}

// sides returns the two endpoints of discovery: the extension API server, and kube-apiserver,
// which forwards its discovery.
func sides(t *testing.T) map[string]envtest.Endpoint {
	t.Helper()
	return map[string]envtest.Endpoint{"direct": direct(t, shared), "through kube-apiserver": aggregator(t, shared)}
}

// TestDiscovery checks that the group has the versions of the list, in order, and that each
// version has exactly the resources in surfaces.
func TestDiscovery(t *testing.T) {
	gvs := install.GroupVersions()
	for side, server := range sides(t) {
		var group metav1.APIGroup
		getJSON(t, server, "/apis/"+gvs[0].Group, &group)
		var want []metav1.GroupVersionForDiscovery
		for _, gv := range gvs {
			want = append(want, metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: gv.Version})
		}
		if diff := cmp.Diff(want, group.Versions); diff != "" || group.PreferredVersion != want[0] {
			t.Errorf("%s: preferred version %v, want %v; versions (-want +got):\n%s", side, group.PreferredVersion,
				want[0], diff)
		}
		hashes := map[string]string{}
		for _, gv := range gvs {
			var list metav1.APIResourceList
			getJSON(t, server, "/apis/"+gv.String(), &list)
			var resources []metav1.APIResource
			for _, s := range served(gv) {
				resources = append(append(resources, s.resource), s.subresources...)
			}
			ignoreHash := cmpopts.IgnoreFields(metav1.APIResource{}, "StorageVersionHash")
			if diff := cmp.Diff(resources, list.APIResources, ignoreHash); diff != "" ||
				list.GroupVersion != gv.String() {
				t.Errorf("%s: resources of %s, which is %s (-want +got):\n%s", side, gv,
					list.GroupVersion, diff)
			}
			// The hash tells the storage version migrator which resources share a stored
			// representation.
			for _, r := range list.APIResources {
				stored := !strings.Contains(r.Name, "/") && slices.Contains(r.Verbs, "list") &&
					slices.Contains(r.Verbs, "create")
				before, seen := hashes[r.Name]
				if (r.StorageVersionHash != "") != stored || seen && r.StorageVersionHash != before {
					t.Errorf("%s: storage version hash of %s in %s is %q, in another version %q; it is stored: %t",
						side, r.Name, gv, r.StorageVersionHash, before, stored)
				}
				hashes[r.Name] = r.StorageVersionHash
			}
		}
	}
}

func getJSON(t *testing.T, server envtest.Endpoint, path string, into any) {
	t.Helper()
	if err := json.Unmarshal(server.Get(t, path, nil).Body, into); err != nil {
		t.Fatal(err)
	}
}

// TestAggregatedDiscovery checks that clients get all groups with one request, and a 304 response
// if they have them already.
func TestAggregatedDiscovery(t *testing.T) {
	const accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	gvs := install.GroupVersions()
	want := apidiscoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: gvs[0].Group}}
	for _, gv := range gvs {
		version := apidiscoveryv2.APIVersionDiscovery{Version: gv.Version,
			Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent}
		for _, s := range served(gv) {
			version.Resources = append(version.Resources, discovered(s))
		}
		want.Versions = append(want.Versions, version)
	}
	for side, server := range sides(t) {
		a := server.Get(t, "/apis", http.Header{"Accept": {accept}})
		if got := a.Header.Get("Content-Type"); got != accept {
			t.Errorf("%s: Content-Type %s, want %s", side, got, accept)
		}
		var list apidiscoveryv2.APIGroupDiscoveryList
		if err := json.Unmarshal(a.Body, &list); err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(list.Items,
			func(g apidiscoveryv2.APIGroupDiscovery) bool { return g.Name == gvs[0].Group })
		if i < 0 {
			t.Errorf("%s: the group is not among the %d", side, len(list.Items))
			continue
		}
		if diff := cmp.Diff(want, list.Items[i], cmpopts.IgnoreFields(metav1.ObjectMeta{},
			"CreationTimestamp")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", side, diff)
		}
		header := http.Header{"Accept": {accept}, "If-None-Match": {a.Header.Get("ETag")}}
		again := server.Do(t, http.MethodGet, "/apis", header, nil)
		if again.Status != http.StatusNotModified || len(again.Body) > 0 ||
			!strings.Contains(a.Header.Get("Vary"), "Accept") {
			t.Errorf("%s: with the ETag %d and %d bytes, Vary %q; want 304, none and Accept", side, again.Status,
				len(again.Body), a.Header.Get("Vary"))
		}
	}
}

// discovered returns a resource as aggregated discovery describes it. Like kube-apiserver it
// omits the group and version of a kind if they are those of the resource.
func discovered(s surface) apidiscoveryv2.APIResourceDiscovery {
	kind := func(r metav1.APIResource) *metav1.GroupVersionKind {
		return &metav1.GroupVersionKind{Group: r.Group, Version: r.Version, Kind: r.Kind}
	}
	d := apidiscoveryv2.APIResourceDiscovery{
		Resource: s.resource.Name, SingularResource: s.resource.SingularName, ResponseKind: kind(s.resource),
		Scope: apidiscoveryv2.ScopeCluster,
		Verbs: s.resource.Verbs, ShortNames: s.resource.ShortNames, Categories: s.resource.Categories,
	}
	if s.resource.Namespaced {
		d.Scope = apidiscoveryv2.ScopeNamespace
	}
	for _, sub := range s.subresources {
		d.Subresources = append(d.Subresources, apidiscoveryv2.APISubresourceDiscovery{
			Subresource: strings.TrimPrefix(sub.Name, s.resource.Name+"/"), ResponseKind: kind(sub), Verbs: sub.Verbs,
		})
	}
	return d
}

// TestKubectlAPIResources checks that kubectl shows the resources of the preferred version, with
// all names by which they can be requested.
func TestKubectlAPIResources(t *testing.T) {
	gv := install.GroupVersions()[0]
	stdout, stderr, err := envtest.Kubectl{}.Run(t.Context(), shared, "api-resources", "--api-group="+gv.Group,
		"--no-headers", "-o", "wide", "--sort-by=name")
	if err != nil {
		t.Fatalf("kubectl api-resources: %v\n%s", err, stderr)
	}
	var want []string
	for _, s := range served(gv) {
		namespaced := map[bool]string{true: "true", false: "false"}[s.resource.Namespaced]
		fields := []string{
			s.resource.Name, strings.Join(s.resource.ShortNames, ","), gv.String(), namespaced, s.resource.Kind,
			strings.Join(s.resource.Verbs, ","), strings.Join(s.resource.Categories, ","),
		}
		want = append(want, strings.Join(strings.Fields(strings.Join(fields, " ")), " "))
	}
	var got []string
	for line := range strings.Lines(stdout) {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("kubectl api-resources (-want +got):\n%s", diff)
	}
}
