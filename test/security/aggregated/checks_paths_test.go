// SPDX-License-Identifier: Apache-2.0

package aggregated

import (
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/extension-apiserver/sample/apis/workshop/install"
)

func nameIs(name string) []metav1.FieldSelectorRequirement {
	return []metav1.FieldSelectorRequirement{{Key: "metadata.name", Operator: metav1.FieldSelectorOpIn,
		Values: []string{name}}}
}

// paths returns the rows of non-resource paths, and of paths outside discovery. They are sent to
// the server's own port, except for discovery, which kube-apiserver proxies.
func (s checkObjects) paths() []check {
	var rows []check
	for _, gv := range install.GroupVersions() {
		path := "/apis/" + gv.String()
		rows = append(rows, check{method: "GET", path: path, status: 200, want: one(pathCheck("get", path))})
	}
	for _, c := range []struct {
		method, path string
		status       int
	}{
		{"GET", "/", 200}, {"GET", "/apis", 200}, {"GET", "/apis/" + group, 200}, {"GET", current, 200},
		{"GET", "/version", 200}, {"GET", "/metrics", 200}, {"GET", "/metrics/slis", 200},
		{"GET", "/openapi/v2", 200}, {"GET", "/openapi/v3", 200}, {"GET", "/openapi/v3" + current, 200},
		{"HEAD", "/metrics", 200}, {"POST", "/openapi/v2", 200}, {"GET", "/healthz/ping", 200},
		{"GET", "/livez/ping", 200}, {"GET", "/readyz/ping", 200},
		{"GET", "/debug/pprof/", 404}, {"GET", "/debug/flags/v", 404}, {"GET", "/logs/", 404}, {"GET", "/configz", 404},
		{"GET", "/nowhere", 404},
	} {
		rows = append(rows, check{method: c.method, path: c.path, direct: true, status: c.status,
			want: one(pathCheck(strings.ToLower(c.method), c.path))})
	}
	// Probes have no credentials, and cause no check.
	for _, path := range []string{"/healthz", "/livez", "/readyz"} {
		rows = append(rows, check{method: "GET", path: path, direct: true, status: 200})
	}
	gv := install.GroupVersions()[0]
	object := widgetsOf(s.namespace) + "/" + s.widget
	reviewOf := func(verb, subresource string) []authorizationv1.SubjectAccessReviewSpec {
		return one(resourceCheck(gv, verb, "widgets", subresource, s.namespace, s.widget))
	}
	return append(rows,
		// A path that is not served is checked as well, before the response discloses that it does
		// not exist.
		check{method: "POST", path: object, status: 405, want: reviewOf("create", "")},
		check{method: "HEAD", path: object, status: 405, want: reviewOf("get", "")},
		check{method: "OPTIONS", path: object, status: 405, want: reviewOf("", "")},
		check{method: "DELETE", path: object + "/status", status: 405, want: reviewOf("delete", "status")},
		check{method: "POST", path: object + "/console", status: 405, want: reviewOf("create", "console")},
		check{method: "GET", path: object + "/exec", status: 404, want: reviewOf("get", "exec")},
		check{method: "GET", path: object + "/status/more", status: 404, want: reviewOf("get", "status")},
		check{method: "GET", path: current + "/nothing", status: 404,
			want: one(resourceCheck(gv, "list", "nothing", "", "", ""))},
		check{method: "DELETE", path: current + "/widgets", status: 405,
			want: one(resourceCheck(gv, "deletecollection", "widgets", "", "", ""))},
		check{method: "GET", path: current + "/proxy/namespaces/" + s.namespace + "/widgets/" + s.widget, status: 404,
			want: reviewOf("proxy", "")},
	)
}
