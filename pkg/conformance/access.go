// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

var versionChecks = []Check{
	{"versions/read", Required, concepts,
		"An object can be read in each version, with the same uid and resourceVersion.",
		[]need{verbs("create", "get"), otherVersions}, func(s *session) {
			obj := s.create()
			for _, version := range s.r.discovered.otherVersions {
				got := s.want(s.do("GET", s.in(version, obj)), 200).object()
				if got.GetUID() != obj.GetUID() || got.GetAPIVersion() != s.apiVersionOf(version) ||
					got.GetKind() != s.kind() {
					s.errorf("%s: got %s %s with uid %s", version, got.GetAPIVersion(), got.GetKind(), got.GetUID())
				}
			}
		}},
	{"versions/list", Required, concepts, "Objects can be listed in each version.",
		[]need{verbs("create", "list"), otherVersions}, func(s *session) {
			want := s.some(2)
			for _, version := range s.r.discovered.otherVersions {
				s.lists(s.do("GET", s.collectionIn(version, s.namespace), query("labelSelector", s.selector())), want)
			}
		}},
	{"versions/round-trip", Required, concepts, "An object that is read and written in another version loses no data.",
		[]need{verbs("create", "update"), otherVersions}, func(s *session) {
			obj := s.create()
			for _, version := range s.r.discovered.otherVersions {
				s.unconflicted(func() *response {
					return s.do("PUT", s.in(version, obj), body(s.want(s.do("GET", s.in(version, obj)), 200).object()))
				})
				if missing := firstDifference(content(obj), content(s.get(obj)), ""); missing != "" {
					s.errorf("after a write in %s: %s", version, missing)
				}
			}
		}},
	{"versions/watch", Required, concepts, "A write in one version is an event of a watch in another version.",
		[]need{verbs("create", "list", "watch"), otherVersions}, func(s *session) {
			for _, version := range s.r.discovered.otherVersions {
				w := s.watch(s.collectionIn(version, s.namespace), query("labelSelector", s.selector()),
					query("resourceVersion", s.now()))
				e := w.expect("ADDED", s.create().GetName())
				if e.object().GetAPIVersion() != s.apiVersionOf(version) {
					s.errorf("%s: the event has %s", version, e.object().GetAPIVersion())
				}
			}
		}},
	{"versions/delete", Required, concepts, "An object can be deleted in another version.",
		[]need{verbs("create", "delete"), otherVersions}, func(s *session) {
			for _, version := range s.r.discovered.otherVersions {
				obj := s.create()
				s.want(s.do("DELETE", s.in(version, obj), query("propagationPolicy", "Background")), 200, 202)
				s.eventually("after the deletion in "+version, func() string {
					if a := s.do("GET", s.path(obj)); a.Code != 404 {
						return "the object still exists"
					}
					return ""
				})
			}
		}},
}

func (s *session) apiVersionOf(version string) string {
	return strings.TrimPrefix(strings.TrimPrefix(s.groupPath(version), "/apis/"), "/api/")
}

// grant grants a user permissions by RBAC until the end of the check, and the permissions of the
// target.
func (s *session) grant(user string, rules ...rbacv1.PolicyRule) {
	name := s.name()
	rules = slices.Concat(rules, s.r.target.Permissions)
	const path = "/apis/rbac.authorization.k8s.io/v1/"
	for resource, obj := range map[string]map[string]any{
		"clusterroles": {"kind": "ClusterRole", "rules": rules},
		"clusterrolebindings": {
			"kind": "ClusterRoleBinding", "roleRef": map[string]any{"apiGroup": "rbac.authorization.k8s.io",
				"kind": "ClusterRole", "name": name},
			"subjects": []any{map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}},
		},
	} {
		obj["apiVersion"], obj["metadata"] = "rbac.authorization.k8s.io/v1",
			map[string]any{"name": name, "labels": s.labels()}
		if a := s.do("POST", path+resource, body(obj)); a.Code == 403 || a.Code == 404 {
			s.skipf("cannot grant permissions: %s", a)
		} else {
			s.want(a, 201)
		}
		s.objects = append(s.objects, path+resource+"/"+name)
	}
	s.granted = append(s.granted, rules...)
}

func (s *session) rule(resource string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{s.r.discovered.gvr.Group}, Resources: []string{resource}, Verbs: verbs}
}

// permits reports whether a rule permits a verb on all objects of a resource.
func permits(rule rbacv1.PolicyRule, verb string, resource schema.GroupResource) bool {
	has := func(list []string, value string) bool {
		return slices.Contains(list, value) || slices.Contains(list, "*")
	}
	return has(rule.Verbs, verb) && has(rule.APIGroups, resource.Group) && has(rule.Resources, resource.Resource) &&
		len(rule.ResourceNames) == 0
}

// checkPermissions returns an error for each permission of the target that checks withhold from
// their users.
func (t *Target) checkPermissions(f *discovered) error {
	var problems []error
	for _, verb := range f.resource.Verbs {
		for _, rule := range t.Permissions {
			if permits(rule, verb, f.gvr.GroupResource()) {
				problems = append(problems, fmt.Errorf("the permissions include %s %s, which checks withhold from their users",
					verb, f.gvr.GroupResource()))
			}
		}
	}
	return errors.Join(problems...)
}

// missingPermission matches the message with which k8s.io/apiserver rejects a request of a user.
var missingPermission = regexp.MustCompile(`User "([^"]*)" cannot (\S+) resource "([^"]*)" in API group "([^"]*)"`)

// expectPermitted stops the check if the server rejected a request of the check's user because of
// a permission that the check does not know, such as one that the kind requires for a field. It
// accepts a rejection for the lack of a permission of the resource, or of one that was granted,
// which takes effect with a delay.
func (s *session) expectPermitted(a *response) {
	status := metav1.Status{}
	if a.Code != 403 || json.Unmarshal(a.Body, &status) != nil {
		return
	}
	match := missingPermission.FindStringSubmatch(status.Message)
	if match == nil || match[1] != s.user() {
		return
	}
	verb, needed := match[2], schema.GroupResource{Group: match[4], Resource: match[3]}
	resource, _, _ := strings.Cut(needed.Resource, "/")
	known := slices.Contains(requestVerbs, verb) &&
		s.r.discovered.gvr.GroupResource() == schema.GroupResource{Group: needed.Group, Resource: resource}
	if known || slices.ContainsFunc(s.granted, func(r rbacv1.PolicyRule) bool { return permits(r, verb, needed) }) {
		return
	}
	s.fatalf("%s: got %s; the user needs the permission to %s %s: set Target.Permissions, or --permissions", a.request, a,
		verb, needed)
}

// requestVerbs are the verbs of requests for a resource.
var requestVerbs = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}

// user returns the name of the user of the check.
func (s *session) user() string { return "conformance-" + s.label() }

// unprivilegedUser returns a user without permissions for the resource. It skips the check if the
// caller may not impersonate users.
func (s *session) unprivilegedUser() string {
	user := s.user()
	for _, verb := range []string{"get", "create"} {
		a := s.do("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", as(user), body(map[string]any{
			"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
			"spec": map[string]any{"resourceAttributes": map[string]any{
				"verb": verb, "group": s.r.discovered.gvr.Group, "resource": s.r.discovered.gvr.Resource,
				"namespace": s.namespace,
			}},
		}))
		if a.Code == 403 {
			s.skipf("no permission to impersonate: %s", a)
		}
		if allowed, _, _ := unstructured.NestedBool(s.want(a, 201).object().Object, "status", "allowed"); allowed {
			s.skipf("any user can %s the resource", verb)
		}
	}
	return user
}

// forbids returns a check that a request of an unprivileged user is rejected with 403.
func forbids(verb string, send func(*session, *unstructured.Unstructured, option) *response) Check {
	needs := []need{verbs("create", verb)}
	if verb == "deletecollection" {
		needs = append(needs, confined)
	}
	return Check{"authorization/" + verb, Required, authorizing, "Without the permission to " + verb +
		", a request is rejected with 403.", needs, func(s *session) {
		if verb == "deletecollection" {
			s.apart()
		}
		user, obj := s.unprivilegedUser(), s.create()
		status := s.expectRefused(send(s, obj, as(user)), 403)
		if status.Reason != metav1.StatusReasonForbidden || !strings.Contains(status.Message, user) {
			s.errorf("got reason %q and message %q, want Forbidden and the user", status.Reason, status.Message)
		}
		s.untouched(obj)
	}}
}

var authorizationChecks = []Check{
	forbids("get", func(s *session, obj *unstructured.Unstructured, as option) *response {
		return s.do("GET", s.path(obj), as)
	}),
	forbids("list", func(s *session, _ *unstructured.Unstructured, as option) *response {
		return s.do("GET", s.collection(), as)
	}),
	forbids("watch", func(s *session, _ *unstructured.Unstructured, as option) *response {
		return s.do("GET", s.collection(), as, query("watch", "true"), query("timeoutSeconds", "2"))
	}),
	forbids("create", func(s *session, _ *unstructured.Unstructured, as option) *response {
		return s.do("POST", s.collection(), as, body(s.object()))
	}),
	forbids("update", func(s *session, obj *unstructured.Unstructured, as option) *response {
		changed := obj.DeepCopy()
		labelled("dry", "yes")(changed)
		return s.do("PUT", s.path(obj), as, body(changed))
	}),
	forbids("patch", func(s *session, obj *unstructured.Unstructured, as option) *response {
		return s.do("PATCH", s.path(obj), as, mergePatch(metadata(
			map[string]any{"labels": map[string]any{"dry": "yes"}})))
	}),
	forbids("delete", func(s *session, obj *unstructured.Unstructured, as option) *response {
		return s.do("DELETE", s.path(obj), as)
	}),
	forbids("deletecollection", func(s *session, _ *unstructured.Unstructured, as option) *response {
		return s.deleteCollection(as, query("labelSelector", s.selector()))
	}),
	{"authorization/granted", Required, authorizing,
		"A granted permission is sufficient, and grants no other permission.",
		[]need{verbs("create", "get", "list")}, func(s *session) {
			user, obj := s.unprivilegedUser(), s.create()
			s.grant(user, s.rule(s.r.discovered.gvr.Resource, "get"))
			s.eventually("with the permission to get", func() string { return s.allows(user, s.path(obj)) })
			s.expectRefused(s.do("GET", s.collection(), as(user)), 403)
		}},
	{"authorization/by-name", Required, authorizing, "A permission for one name does not apply to another name.",
		[]need{verbs("create", "get")}, func(s *session) {
			user, mine, other := s.unprivilegedUser(), s.create(), s.create()
			rule := s.rule(s.r.discovered.gvr.Resource, "get")
			rule.ResourceNames = []string{mine.GetName()}
			s.grant(user, rule)
			s.eventually("with the permission to get one", func() string { return s.allows(user, s.path(mine)) })
			s.expectRefused(s.do("GET", s.path(other), as(user)), 403)
		}},
	{"authorization/status", Required, authorizing,
		"The permission for a resource does not include its status, nor the reverse.",
		[]need{verbs("create", "patch"), subresource("status")}, func(s *session) {
			user, obj := s.unprivilegedUser(), s.create()
			s.grant(user, s.rule(s.r.discovered.gvr.Resource+"/status", "patch", "get"))
			s.eventually("with the permission to the status", func() string {
				if a := s.do("PATCH", s.path(obj)+"/status", as(user), mergePatch(map[string]any{})); a.Code != 200 {
					return "got " + a.String()
				}
				return ""
			})
			s.expectRefused(s.do("PATCH", s.path(obj), as(user), mergePatch(map[string]any{})), 403)
		}},
	{"authorization/deletecollection-separate", Required, authorizing,
		"The permission to delete objects does not include deletecollection.",
		[]need{verbs("create", "delete", "deletecollection"), confined}, func(s *session) {
			s.apart()
			user, obj := s.unprivilegedUser(), s.create()
			s.grant(user, s.rule(s.r.discovered.gvr.Resource, "delete", "get", "list"))
			s.eventually("with the permission to get", func() string { return s.allows(user, s.path(obj)) })
			s.expectRefused(s.deleteCollection(as(user), query("labelSelector", s.selector())), 403)
			s.get(obj)
		}},
	{"authorization/deletecollection-sufficient", Required, authorizing,
		"The permission deletecollection is sufficient to delete a collection.",
		[]need{verbs("create", "deletecollection"), confined},
		func(s *session) {
			s.apart()
			user, obj := s.unprivilegedUser(), s.create()
			s.grant(user, s.rule(s.r.discovered.gvr.Resource, "deletecollection"))
			s.eventually("with the permission to delete a collection", func() string {
				if a := s.deleteCollection(as(user), query("labelSelector", s.selector()),
					query("propagationPolicy", "Background")); a.Code != 200 {
					return "got " + a.String()
				}
				if a := s.do("GET", s.path(obj)); a.Code != 404 {
					return "the object still exists"
				}
				return ""
			})
		}},
	{"authorization/anonymous", Required, authorizing, "The user system:anonymous has no permissions.",
		[]need{verbs("create", "get")}, func(s *session) {
			s.unprivilegedUser()
			s.expectRefused(s.do("GET", s.path(s.create()), as("system:anonymous"),
				header("Impersonate-Group", "system:unauthenticated")), 403, 401)
		}},
	{"authorization/apply-creates", Required, authorizing,
		"An apply that creates an object also requires the permission to create.",
		[]need{verbs("create", "patch")}, func(s *session) {
			user, obj := s.unprivilegedUser(), s.create()
			s.grant(user, s.rule(s.r.discovered.gvr.Resource, "patch"))
			s.eventually("with the permission to patch", func() string {
				if a := s.do("PATCH", s.path(obj), as(user), mergePatch(map[string]any{})); a.Code != 200 {
					return "got " + a.String()
				}
				return ""
			})
			s.expectRefused(s.apply(s.name(), appliers, map[string]any{}, as(user)), 403)
		}},
	{"authorization/missing-hidden", Required, authorizing,
		"For an unprivileged user, an object that does not exist returns 403, like one that exists.",
		[]need{verbs("get")}, func(s *session) {
			s.expectRefused(s.do("GET", s.path(s.object()), as(s.unprivilegedUser())), 403)
		}},
}

// metadataRefused returns a check that invalid metadata is rejected.
func metadataRefused(id, text, field string, change func(*unstructured.Unstructured)) Check {
	return Check{"limits/" + id, Required, conventions, text, []need{verbs("create")}, func(s *session) {
		obj := s.object()
		change(obj)
		s.invalid(s.do("POST", s.collection(), body(obj)), field)
	}}
}

var limitChecks = []Check{
	metadataRefused("label-key", "A label with a malformed key is rejected with 422.", "metadata.labels",
		labelled("a b", "c")),
	metadataRefused("label-value", "A label whose value is too long is rejected with 422.", "metadata.labels",
		labelled("a", strings.Repeat("x", 64))),
	metadataRefused("annotation-key", "An annotation with a malformed key is rejected with 422.", "metadata.annotations",
		func(obj *unstructured.Unstructured) {
			obj.SetAnnotations(map[string]string{"a b": "c"})
		}),
	metadataRefused("annotations", "Annotations of more than 256 KiB are rejected with 422.", "metadata.annotations",
		func(obj *unstructured.Unstructured) {
			obj.SetAnnotations(map[string]string{"a": strings.Repeat("x", 256<<10+1)})
		}),
	metadataRefused("finalizer", "A finalizer that is not a qualified name is rejected with 422.", "metadata.finalizers",
		func(obj *unstructured.Unstructured) {
			obj.SetFinalizers([]string{"a b"})
		}),
	metadataRefused("owner", "An owner reference without uid is rejected with 422.", "metadata.ownerReferences",
		func(obj *unstructured.Unstructured) {
			obj.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "a"}})
		}),
	metadataRefused("owners", "Two owner references with controller=true are rejected with 422.",
		"metadata.ownerReferences",
		func(obj *unstructured.Unstructured) {
			yes := true
			obj.SetOwnerReferences([]metav1.OwnerReference{
				{APIVersion: "v1", Kind: "ConfigMap", Name: "a", UID: "1", Controller: &yes},
				{APIVersion: "v1", Kind: "ConfigMap", Name: "b", UID: "2", Controller: &yes},
			})
		}),
	{"limits/expect-continue", Optional, "https://www.rfc-editor.org/rfc/rfc9110#field.expect",
		"A write over HTTP/1.1 with Expect: 100-continue returns the status code of its response. kube-apiserver " +
			"returns 200 for all writes to aggregated APIs.", []need{verbs("create")}, func(s *session) {
			config := rest.CopyConfig(s.r.target.Config)
			config.QPS, config.Timeout, config.NextProtos = -1, 0, []string{"http/1.1"}
			old, err := newEndpoint(config)
			if err != nil {
				s.fatalf("%v", err)
			}
			a := s.do("POST", s.collection(), text("application/json", "{"), header("Expect", "100-continue"), at(old))
			if a.Code/100 != 4 {
				s.errorf("a body that is not JSON gets %s, want 4xx", a)
			}
		}},
	{"limits/long-name", Required, names, "A name of more than 253 characters is rejected.", []need{verbs("create")},
		func(s *session) {
			obj := s.object()
			obj.SetName(strings.Repeat("x", 254))
			s.expectRefused(s.do("POST", s.collection(), body(obj)), 422)
		}},
	{"limits/large-body", Required, concepts,
		"A body of more than 3 MiB is rejected with 413.", []need{verbs("create")},
		func(s *session) {
			a := s.do("POST", s.collection(), text("application/json",
				`{"metadata":{"annotations":{"a":"`+strings.Repeat("x", 3<<20+1)+`"}}}`))
			s.want(a, 413)
		}},
	{"limits/deep-body", Required, concepts, "A body of 20,000 nested lists is rejected with 400.",
		[]need{verbs("create")}, func(s *session) {
			const depth = 20_000
			a := s.do("POST", s.collection(), text("application/json",
				`{"metadata":`+strings.Repeat("[", depth)+strings.Repeat("]", depth)+`}`))
			s.want(a, 400, 413, 422)
		}},
	{"limits/large-patch", Required, concepts, "A JSON patch of more than 10,000 operations is rejected with 413.",
		[]need{verbs("create", "patch")}, func(s *session) {
			operation := `{"op":"test","path":"/kind","value":"` + s.kind() + `"}`
			a := s.do("PATCH", s.path(s.create()), jsonPatch("["+strings.Repeat(operation+",", 10_000)+operation+"]"))
			s.want(a, 413)
		}},
	{"limits/invalid-parameters", Required, concepts, "Invalid query parameters never return 5xx.",
		[]need{verbs("list")}, func(s *session) {
			for _, name := range []string{"limit", "continue", "resourceVersion", "resourceVersionMatch",
				"timeoutSeconds",
				"watch", "allowWatchBookmarks", "sendInitialEvents",
				"fieldSelector", "labelSelector", "pretty", "includeObject"} {
				for _, value := range []string{"", "-1", "\x00", "%", "99999999999999999999", "true,false", "'", "{}"} {
					options := []option{query(name, value), query("timeoutSeconds", "1")}
					if name != "labelSelector" {
						options = append(options, query("labelSelector", s.selector()))
					}
					a := s.do("GET", s.collection(), options...)
					if a.Code >= 500 && a.Code != 504 {
						s.errorf("%s: got %s", a.request, a)
					}
				}
			}
		}},
	{"limits/invalid-bodies", Required, concepts, "Invalid bodies never return 5xx.",
		[]need{verbs("create", "patch")}, func(s *session) {
			path := s.path(s.create())
			for _, data := range []string{"null", "[]", "0", `""`, "{}", `{"metadata":null}`,
				`{"metadata":{"name":null}}`,
				`{"kind":1}`, "\xff\xfe", `{"a":1e999}`, "{" + strings.Repeat(`"a":{`, 50)} {
				for _, a := range []*response{
					s.do("POST", s.collection(), text("application/json", data), query("dryRun", "All")),
					s.do("PUT", path, text("application/json", data), query("dryRun", "All")),
					s.do("PATCH", path, text(typeMergePatch, data), query("dryRun", "All")),
					s.do("PATCH", path, text(typeJSONPatch, data), query("dryRun", "All")),
					s.do("PATCH", path, text(typeApply, data), query("dryRun", "All"), query("fieldManager", "a")),
				} {
					if a.Code >= 500 {
						s.errorf("%s with %q: got %s", a.request, data, a)
					}
				}
			}
		}},
}
