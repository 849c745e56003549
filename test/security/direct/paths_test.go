// SPDX-License-Identifier: Apache-2.0

package direct

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
)

// TestS26NonResourcePaths checks that non-resource paths are authorized by their path, and that
// profiling is disabled.
func TestS26NonResourcePaths(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	proxy := frontProxy(t)
	admin := http.Header{"X-Remote-User": {"admin"}, "X-Remote-Group": {"system:masters"}}
	for path, there := range map[string]int{
		"/metrics": 200, "/metrics/slis": 200, "/livez/ping": 200, "/readyz/etcd": 200, "/": 200, "/statusz": 200,
		"/debug/pprof/": 404, "/debug/pprof/heap": 404, "/debug/flags/v": 404, "/logs/": 404, "/configz": 404,
		"/nowhere": 404,
		"/flagz":   404, "/ui": 404, "/swagger.json": 404, "/.well-known/openid-configuration": 404,
	} {
		s.clearRequests()
		s.try(proxy, http.MethodGet, path, http.Header{"X-Remote-User": {"ann"}}, "").want(t,
			"GET "+path+" as an unprivileged user", http.StatusForbidden)
		if got := s.access(t); len(got) != 1 || attributesLine(got[0]) != "get "+path {
			t.Errorf("GET %s: SubjectAccessReviews %+v, want one for it", path, got)
		}
		s.try(proxy, http.MethodGet, path, admin, "").want(t, "GET "+path+" as an administrator", there)
	}
	for _, path := range []string{"/readyz?verbose", "/livez?verbose", "/healthz?verbose"} {
		if got := s.try(proxy, http.MethodGet, path, http.Header{"X-Remote-User": {"ann"}}, ""); strings.Contains(
			got.body, "127.0.0.1") || strings.Contains(got.body, "error") {
			t.Errorf("GET %s as an unprivileged user discloses too much: %s", path, got)
		}
	}
}

// TestS27UncleanPaths checks that the authorized path is the served path. A path with two
// interpretations must not be authorized in one and served in the other. The user may read "/apis"
// and below it but no resources, and not "/metrics".
func TestS27UncleanPaths(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.decide(t, func(spec authorizationv1.SubjectAccessReviewSpec) http.HandlerFunc {
		ok := spec.NonResourceAttributes != nil && (spec.NonResourceAttributes.Path == "/apis" ||
			strings.HasPrefix(spec.NonResourceAttributes.Path, "/apis/"))
		return reviewStatus(fmt.Sprintf(`"allowed":%t`, ok))
	})
	proxy := frontProxy(t)
	const refused = "400 403 404 405"
	for _, tc := range []struct{ target, want string }{
		{"/apis", "200"},
		{"/metrics", "403"},
		{"//apis", refused},
		{"//metrics", refused},
		{"/apis/../metrics", refused},
		{"/apis/./../metrics", refused},
		{"/apis//../metrics", refused},
		{"/apis/%2e%2e/metrics", refused},
		{"/apis/%2E%2E/metrics", refused},
		{"/apis/%2e%2e%2fmetrics", refused},
		{"/apis/..%2fmetrics", refused},
		{"/apis/..%5cmetrics", refused},
		{"/apis/..\\metrics", refused},
		{"/apis/..;/metrics", refused},
		{"/apis;/../metrics", refused},
		{"/apis%00/metrics", refused},
		{"/apis%0a/metrics", refused},
		{"/apis%2f..%2fmetrics", refused},
		{"/apis/x/../workshop.example.com/v1/gadgets", refused},
		{"/apis/workshop.example.com/v1/./gadgets", refused},
		{"/apis/workshop.example.com/v1//gadgets", refused},
		{"/apis/workshop.example.com//v1/gadgets", refused},
		{"/apis//workshop.example.com/v1/gadgets", refused},
		{"//apis/workshop.example.com/v1/gadgets", refused},
		{"/apis/workshop.example.com/v1/gadgets/", refused},
		{"/apis/workshop.example.com/v1%2fgadgets", refused},
		{"/apis/workshop.example.com/v1/%67adgets", refused},
		{"/%61pis/workshop.example.com/v1/gadgets", refused},
		{"/APIS/workshop.example.com/v1/gadgets", refused},
		{"/healthz/../metrics", refused},
		{"/healthz/%2e%2e/apis/workshop.example.com/v1/gadgets", refused},
		{"/livez%2f..%2fmetrics", refused},
		{"https://localhost/metrics", refused},
		{"https://localhost/apis/../metrics", refused},
		{"https://elsewhere.example.com/metrics", refused},
		{"*", refused},
		{"metrics", refused},
		{"/apis?/../metrics", "200"},
		{"/metrics?/apis", refused},
		{"/metrics#/apis", refused},
	} {
		for _, version := range []string{"HTTP/1.1", "HTTP/1.0"} {
			status, body := s.raw(t,
				fmt.Sprintf("GET %s %s\r\nHost: elsewhere.example.com\r\nX-Remote-User: ann\r\n\r\n", tc.target,
					version), proxy)
			if !slices.Contains(strings.Fields(tc.want), status) {
				t.Errorf("GET %s %s: %s, want %s: %.200s", tc.target, version, status, tc.want, body)
			}
			if strings.Contains(body, "# HELP") || strings.Contains(body, "GadgetList") {
				t.Errorf("GET %s %s gave what the user may not see", tc.target, version)
			}
		}
	}
	if status, _ := s.raw(t, "CONNECT 127.0.0.1:1 HTTP/1.1\r\nHost: x\r\nX-Remote-User: ann\r\n\r\n",
		proxy); !slices.Contains(strings.Fields(refused), status) {
		t.Errorf("CONNECT: %s, want %s", status, refused)
	}
	if status, _ := s.raw(t, "GET /apis HTTP/1.1\r\nX-Remote-User: ann\r\n\r\n", proxy); status != "400" {
		t.Errorf("no Host: %s, want 400", status)
	}
	if status, _ := s.raw(t, "GET /apis HTTP/1.1\r\nHost: a\r\nHost: b\r\nX-Remote-User: ann\r\n\r\n",
		proxy); status != "400" {
		t.Errorf("two Hosts: %s, want 400", status)
	}
}
