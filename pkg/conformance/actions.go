// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// anAction requires that the target has the body of an action.
func anAction(_ *discovered, t *Target) string {
	if len(t.Actions) == 0 {
		return "the target has no Actions"
	}
	return ""
}

// checkActions returns an error for each action of the target that the resource does not have.
func (t *Target) checkActions(f *discovered) error {
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(t.Actions)) {
		if r, ok := f.subresources[name]; !ok || !slices.Contains(r.Verbs, "create") {
			problems = append(problems, fmt.Errorf("action %s: the resource has no subresource %s with the verb create",
				name, name))
		}
	}
	return errors.Join(problems...)
}

// eachAction calls do with the path and the body of each action. It creates a new object for
// each.
func (s *session) eachAction(do func(path string, obj *unstructured.Unstructured, action map[string]any)) {
	for _, name := range slices.Sorted(maps.Keys(s.r.target.Actions)) {
		obj := s.create()
		action := map[string]any{"apiVersion": s.apiVersion(), "kind": s.r.discovered.subresources[name].Kind}
		maps.Copy(action, s.r.target.Actions[name])
		do(s.path(obj)+"/"+name, obj, action)
	}
}

// allows returns the reason why a GET of the user does not return 200, or "".
func (s *session) allows(user, path string) string {
	if a := s.do("GET", path, as(user)); a.Code != 200 {
		return "got " + a.String()
	}
	return ""
}

// withMetadata returns the body of an action with a field in its metadata.
func withMetadata(action map[string]any, field, value string) map[string]any {
	out := maps.Clone(action)
	out["metadata"] = map[string]any{field: value}
	return out
}

var actionChecks = []Check{
	{"action/create", Required, conventions, "A POST with the body of an action returns 2xx.",
		[]need{verbs("create", "get"), anAction}, func(s *session) {
			s.eachAction(func(path string, _ *unstructured.Unstructured, action map[string]any) {
				if a := s.do("POST", path, body(action)); a.Code/100 != 2 {
					s.errorf("%s: got %s, want 2xx", a.request, a)
				}
			})
		}},
	{"action/dry-run", Required, concepts, "A dry run of an action does not change the object.",
		[]need{verbs("create", "get"), anAction}, func(s *session) {
			s.eachAction(func(path string, obj *unstructured.Unstructured, action map[string]any) {
				a := s.do("POST", path, body(action), query("dryRun", "All"))
				if a.Code/100 != 2 {
					s.errorf("%s: got %s, want 2xx", a.request, a)
				}
				if got := s.get(obj).GetResourceVersion(); got != obj.GetResourceVersion() {
					s.errorf("%s: the resourceVersion is %s, want %s", a.request, got, obj.GetResourceVersion())
				}
			})
		}},
	{"action/preconditions", Recommended, concepts,
		"An action for an object with another uid or another resourceVersion is rejected with 409.",
		[]need{verbs("create", "get"), anAction}, func(s *session) {
			s.eachAction(func(path string, _ *unstructured.Unstructured, action map[string]any) {
				s.expectRefused(s.do("POST", path, body(withMetadata(action, "uid", "another"))), 409)
				s.expectRefused(s.do("POST", path, body(withMetadata(action, "resourceVersion", "1"))), 409)
			})
		}},
	{"action/missing", Required, concepts, "An action for an object that does not exist returns 404.",
		[]need{verbs("create"), anAction}, func(s *session) {
			for name, action := range s.r.target.Actions {
				full := map[string]any{"apiVersion": s.apiVersion(), "kind": s.r.discovered.subresources[name].Kind}
				maps.Copy(full, action)
				s.expectRefused(s.do("POST", s.collection()+"/no-such-object/"+name, body(full)), 404)
			}
		}},
	{"action/kind", Required, concepts, "A body of another kind is rejected with 400.",
		[]need{verbs("create", "get"), anAction}, func(s *session) {
			s.eachAction(func(path string, _ *unstructured.Unstructured, _ map[string]any) {
				s.expectRefused(s.do("POST", path, body(map[string]any{"apiVersion": s.apiVersion(), "kind": s.kind() + "List",
					"items": []any{}})), 400)
			})
		}},
	{"action/authorization", Required, authorizing,
		"An action requires the permission to create the subresource, and no other permission.",
		[]need{verbs("create", "get"), anAction}, func(s *session) {
			user, resource := s.unprivilegedUser(), s.r.discovered.gvr.Resource
			s.grant(user, s.rule(resource, "get", "create", "update", "patch"))
			s.eachAction(func(path string, obj *unstructured.Unstructured, action map[string]any) {
				subresource := resource + path[strings.LastIndex(path, "/"):]
				s.grant(user, s.rule(subresource, "get", "update", "patch", "delete"))
				s.eventually("with all other permissions", func() string { return s.allows(user, s.path(obj)) })
				s.expectRefused(s.do("POST", path, as(user), body(action)), 403)
				s.grant(user, s.rule(subresource, "create"))
				s.eventually("with the permission", func() string {
					if a := s.do("POST", path, as(user), body(action)); a.Code/100 != 2 {
						return "got " + a.String()
					}
					return ""
				})
			})
		}},
	{"log/read", Required, concepts, "A log is text.", []need{verbs("create", "get"), subresource("log")},
		func(s *session) {
			a := s.want(s.do("GET", s.path(s.create())+"/log"), 200)
			s.mediaType(a, "text/plain")
		}},
	{"log/missing", Required, concepts, "The log of an object that does not exist returns 404.",
		[]need{verbs("get"), subresource("log")}, func(s *session) {
			s.expectRefused(s.do("GET", s.collection()+"/no-such-object/log"), 404)
		}},
	{"log/authorization", Required, authorizing,
		"A log requires the permission to get the subresource, and no other permission.",
		[]need{verbs("create", "get"), subresource("log")}, func(s *session) {
			user, resource, obj := s.unprivilegedUser(), s.r.discovered.gvr.Resource, s.create()
			s.grant(user, s.rule(resource, "get", "list", "watch"), s.rule(resource+"/log", "create", "update", "list",
				"watch"))
			s.eventually("with all other permissions", func() string { return s.allows(user, s.path(obj)) })
			s.expectRefused(s.do("GET", s.path(obj)+"/log", as(user)), 403)
			s.grant(user, s.rule(resource+"/log", "get"))
			s.eventually("with the permission", func() string { return s.allows(user, s.path(obj)+"/log") })
		}},
}
