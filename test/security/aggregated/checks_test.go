// SPDX-License-Identifier: Apache-2.0

package aggregated

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"example.com/extension-apiserver/sample/apis/workshop/install"
)

// check is a row of the authorization table: a request and its exact SubjectAccessReviews.
type check struct {
	version string
	// resource and verb are those of discovery; both are empty for a path outside discovery.
	resource, verb string
	method, path   string
	header         http.Header
	body           func(*testing.T) []byte
	// direct is true if kube-apiserver does not proxy the path.
	direct bool
	status int
	want   []authorizationv1.SubjectAccessReviewSpec
}

func (c check) name() string {
	return fmt.Sprintf("%s %s %s", c.method, c.path, c.header.Get("Content-Type"))
}

// TestS22Checks checks that only kube-apiserver's authorizers allow every verb of every resource
// and subresource in every version, and every non-resource path. The server sends exactly the
// SubjectAccessReviews that match the request.
func TestS22Checks(t *testing.T) {
	s := newCheckObjects(t)
	var table []check
	for _, gv := range install.GroupVersions() {
		table = append(table, s.widgets(gv)...)
		table = append(table, s.widgetReads(gv)...)
		table = append(table, s.widgetSubresources(gv)...)
	}
	table = append(table, s.clusterScoped()...)
	table = append(table, s.paths()...)
	complete(t, table)

	members := unique("auditors")
	allow(t, shared, ofGroup(members), "", everything, everywhere)
	users := make([]*user.DefaultInfo, len(table))
	for i, c := range table {
		users[i] = &user.DefaultInfo{
			Name: unique("s22"), UID: fmt.Sprintf("uid-%d", i), Groups: []string{members, "others"},
			Extra: map[string][]string{"example.com/row": {fmt.Sprint(i), "ö"}},
		}
		var body []byte
		if c.body != nil {
			body = c.body(t)
		}
		server := through(t, shared, users[i])
		if c.direct {
			server = direct(t, shared, users[i])
		}
		// The body of a watch has no end.
		resp := server.Open(t, c.method, c.path, c.header, body)
		if resp.StatusCode != c.status {
			t.Errorf("%s: %s, want %d", c.name(), resp.Status, c.status)
		}
		if err := resp.Body.Close(); err != nil {
			t.Error(err)
		}
	}
	all := logs.checks(t, shared)
	for i, c := range table {
		t.Run(c.name(), func(t *testing.T) {
			var want []authorizationv1.SubjectAccessReviewSpec
			for _, spec := range c.want {
				who := about(users[i])
				who.ResourceAttributes, who.NonResourceAttributes = spec.ResourceAttributes, spec.NonResourceAttributes
				want = append(want, who)
			}
			if diff := cmp.Diff(want, specs(all[users[i].Name])); diff != "" {
				t.Errorf("authorization checks (-want +got):\n%s", diff)
			}
		})
	}
}

// complete fails if discovery and the table differ: a new verb needs its row.
func complete(t *testing.T, table []check) {
	t.Helper()
	client := shared.Client(t).Discovery()
	for _, gv := range install.GroupVersions() {
		list, err := client.ServerResourcesForGroupVersion(gv.String())
		if err != nil {
			t.Fatal(err)
		}
		var inDiscovery []string
		for _, r := range list.APIResources {
			for _, verb := range r.Verbs {
				inDiscovery = append(inDiscovery, r.Name+" "+verb)
			}
		}
		var inTable []string
		for _, c := range table {
			if c.version == gv.Version && c.resource != "" {
				inTable = append(inTable, c.resource+" "+c.verb)
			}
		}
		slices.Sort(inDiscovery)
		slices.Sort(inTable)
		if diff := cmp.Diff(inDiscovery, slices.Compact(inTable)); diff != "" {
			t.Errorf("%s: the table of this test is not what is in discovery (-discovery +table):\n%s", gv, diff)
		}
	}
}

// resourceCheck returns the review of a resource request.
func resourceCheck(gv schema.GroupVersion, verb, resource, subresource, namespace,
	name string) authorizationv1.SubjectAccessReviewSpec {
	return authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
		Group: gv.Group, Version: gv.Version, Verb: verb, Resource: resource, Subresource: subresource,
		Namespace: namespace, Name: name,
	}}
}

// pathCheck returns the review of a non-resource request.
func pathCheck(verb, path string) authorizationv1.SubjectAccessReviewSpec {
	return authorizationv1.SubjectAccessReviewSpec{
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: verb, Path: path}}
}

func one(spec authorizationv1.SubjectAccessReviewSpec) []authorizationv1.SubjectAccessReviewSpec {
	return []authorizationv1.SubjectAccessReviewSpec{spec}
}

// selecting adds selectors to a review.
func selecting(spec authorizationv1.SubjectAccessReviewSpec, fields []metav1.FieldSelectorRequirement,
	labels []metav1.LabelSelectorRequirement) authorizationv1.SubjectAccessReviewSpec {
	if fields != nil {
		spec.ResourceAttributes.FieldSelector = &authorizationv1.FieldSelectorAttributes{Requirements: fields}
	}
	if labels != nil {
		spec.ResourceAttributes.LabelSelector = &authorizationv1.LabelSelectorAttributes{Requirements: labels}
	}
	return spec
}
