// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// anAction needs a body for an action, and objects like the sample.
func anAction(f *discovered, t *Target) string {
	if len(t.Actions) == 0 {
		return "the target has no Actions"
	}
	for _, name := range slices.Sorted(maps.Keys(t.Actions)) {
		if r, ok := f.subresources[name]; !ok || !slices.Contains(r.Verbs, "create") {
			return fmt.Sprintf("the resource has no subresource %s with the verb create", name)
		}
	}
	return ""
}

// eachAction calls a function with the path and the body of each action of a new object of its own.
func (s *session) eachAction(do func(path string, obj *unstructured.Unstructured, action map[string]any)) {
	for _, name := range slices.Sorted(maps.Keys(s.r.target.Actions)) {
		obj := s.create()
		action := map[string]any{"apiVersion": s.apiVersion(), "kind": s.r.discovered.subresources[name].Kind}
		maps.Copy(action, s.r.target.Actions[name])
		do(s.path(obj)+"/"+name, obj, action)
	}
}

// withMetadata returns the body of an action with a field of its metadata.
func withMetadata(action map[string]any, field, value string) map[string]any {
	out := maps.Clone(action)
	out["metadata"] = map[string]any{field: value}
	return out
}

var actionChecks = []Check{
	{"action/create", Required, conventions, "A POST with the body of an action is 2xx.",
		[]need{verbs("create", "get"), anAction}, func(s *session) {
			s.eachAction(func(path string, _ *unstructured.Unstructured, action map[string]any) {
				if a := s.do("POST", path, body(action)); a.Code/100 != 2 {
					s.errorf("%s: got %s, want 2xx", a.request, a)
				}
			})
		}},
	{"action/dry-run", Required, concepts, "A dry run of an action leaves the object as it is.",
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
		"An action for an object with another uid or another resourceVersion is 409.",
		[]need{verbs("create", "get"), anAction}, func(s *session) {
			s.eachAction(func(path string, _ *unstructured.Unstructured, action map[string]any) {
				s.expectRefused(s.do("POST", path, body(withMetadata(action, "uid", "another"))), 409)
				s.expectRefused(s.do("POST", path, body(withMetadata(action, "resourceVersion", "1"))), 409)
			})
		}},
	{"action/missing", Required, concepts, "An action of an object that does not exist is 404.",
		[]need{verbs("create"), anAction}, func(s *session) {
			for name, action := range s.r.target.Actions {
				full := map[string]any{"apiVersion": s.apiVersion(), "kind": s.r.discovered.subresources[name].Kind}
				maps.Copy(full, action)
				s.expectRefused(s.do("POST", s.collection()+"/no-such-object/"+name, body(full)), 404)
			}
		}},
	{"action/kind", Required, concepts, "A body of another kind is 400.",
		[]need{verbs("create", "get"), anAction}, func(s *session) {
			s.eachAction(func(path string, _ *unstructured.Unstructured, _ map[string]any) {
				s.expectRefused(s.do("POST", path, body(map[string]any{"apiVersion": s.apiVersion(), "kind": s.kind() + "List",
					"items": []any{}})), 400)
			})
		}},
	{"action/authorization", Required, authorizing,
		"An action takes the permission to create the subresource: to update the object is not enough.",
		[]need{verbs("create", "get", "update"), anAction}, func(s *session) {
			user := s.unprivilegedUser()
			s.grant(user, s.rule(s.r.discovered.gvr.Resource, "get", "update", "patch"))
			s.eachAction(func(path string, _ *unstructured.Unstructured, action map[string]any) {
				s.expectRefused(s.do("POST", path, as(user), body(action)), 403)
			})
		}},
	{"log/read", Required, concepts, "A log is text.", []need{verbs("create", "get"), subresource("log")},
		func(s *session) {
			a := s.want(s.do("GET", s.path(s.create())+"/log"), 200)
			s.mediaType(a, "text/plain")
		}},
	{"log/missing", Required, concepts, "The log of an object that does not exist is 404.",
		[]need{verbs("get"), subresource("log")}, func(s *session) {
			s.expectRefused(s.do("GET", s.collection()+"/no-such-object/log"), 404)
		}},
	{"log/authorization", Required, authorizing,
		"A log takes the permission to get the subresource: to get the object is not enough.",
		[]need{verbs("create", "get"), subresource("log")}, func(s *session) {
			user := s.unprivilegedUser()
			s.grant(user, s.rule(s.r.discovered.gvr.Resource, "get", "list", "watch"))
			s.expectRefused(s.do("GET", s.path(s.create())+"/log", as(user)), 403)
		}},
}
