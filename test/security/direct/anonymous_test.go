// SPDX-License-Identifier: Apache-2.0

package direct

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// TestS14NoCredentials: whoever shows no credentials gets nothing but whether the server is well. What there is, the server's
// own index says to an administrator.
func TestS14NoCredentials(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	admin := issue(t, readCA(t, "client-ca"), "admin", "system:masters")
	var index struct{ Paths []string }
	if got := s.try(admin, http.MethodGet, "/", nil, ""); json.Unmarshal([]byte(got.body), &index) != nil || len(index.Paths) < 20 {
		t.Fatalf("GET / as an administrator: %s, want a list of paths", got)
	}
	open := []string{"/healthz", "/livez", "/readyz"}
	paths := append(index.Paths, "/", protected, protected+"/x", whoami, "/apis/workshop.example.com/v1/namespaces/default/widgets/x/console",
		"/openapi/v3/apis/workshop.example.com/v1", "/version", "/metrics", "/metrics/slis", "/debug/pprof/", "/debug/flags/v", "/logs", "/configz", "/statusz", "/flagz", "/nowhere", "/readyz/")
	for _, path := range paths {
		for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions, "BREW"} {
			got := s.try(nil, method, path, nil, "")
			if slices.Contains(open, path) {
				if got.status != http.StatusOK && got.status != http.StatusMethodNotAllowed {
					t.Errorf("%s %s: %s, want 200 or 405", method, path, got)
				}
				continue
			}
			got.want(t, method+" "+path, http.StatusUnauthorized)
		}
	}
	// Those three say no more than they must.
	for _, path := range open {
		if got := s.try(nil, http.MethodGet, path, nil, ""); got.body != "ok" {
			t.Errorf("GET %s: %s, want ok", path, got)
		}
	}
	for _, spec := range s.access(t) {
		if spec.User == "system:anonymous" && !slices.Contains(open, strings.Split(spec.NonResourceAttributes.Path, "?")[0]) {
			t.Errorf("SubjectAccessReview for an anonymous request of %v, want none", spec.NonResourceAttributes)
		}
	}
}
