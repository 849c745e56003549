// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

var patchChecks = []Check{
	{"patch/merge", Required, concepts, "A JSON merge patch sets and removes fields.", []need{verbs("create", "patch")},
		func(s *session) {
			obj := s.patch(s.create(labelled("old", "yes")), metadata(
				map[string]any{"labels": map[string]any{"new": "yes", "old": nil}}))
			if _, ok := obj.GetLabels()["old"]; ok || obj.GetLabels()["new"] != "yes" {
				s.errorf("the labels are %v, want new and not old", obj.GetLabels())
			}
		}},
	{"patch/merge-content", Required, concepts, "A JSON merge patch changes the content.",
		[]need{verbs("create", "patch"), aChange}, func(s *session) {
			obj := s.create()
			if missing := firstDifference(s.r.target.Change, s.patch(obj, s.r.target.Change).Object,
				""); missing != "" {
				s.errorf("in the response: %s", missing)
			}
			if missing := firstDifference(s.r.target.Change, s.get(obj).Object, ""); missing != "" {
				s.errorf("read afterwards: %s", missing)
			}
		}},
	{"patch/json", Required, concepts, "A JSON patch adds, tests and removes.", []need{verbs("create", "patch")},
		func(s *session) {
			obj := s.create(labelled("old", "yes"))
			a := s.want(s.do("PATCH", s.path(obj), jsonPatch(`[{"op":"test","path":"/metadata/labels/old","value":"yes"},
			{"op":"add","path":"/metadata/labels/new","value":"yes"},{"op":"remove","path":"/metadata/labels/old"}]`)), 200)
			labels := a.object().GetLabels()
			if _, ok := labels["old"]; ok || labels["new"] != "yes" {
				s.errorf("the labels are %v, want new and not old", labels)
			}
		}},
	{"patch/json-test-fails", Required, concepts,
		"A JSON patch whose test fails is rejected with 422, and changes nothing.", []need{verbs("create", "patch")},
		func(s *session) {
			obj := s.create()
			s.expectRefused(s.do("PATCH", s.path(obj), jsonPatch(`[{"op":"add","path":"/metadata/labels/new","value":"yes"},{"op":"test","path":"/metadata/name","value":"another"}]`)), 422)
			if _, ok := s.get(obj).GetLabels()["new"]; ok {
				s.errorf("the operation before the test was applied")
			}
		}},
	{"patch/json-path-missing", Required, concepts, "A JSON patch that removes a missing field is rejected with 422.",
		[]need{verbs("create", "patch")}, func(s *session) {
			s.expectRefused(s.do("PATCH", s.path(s.create()), jsonPatch(
				`[{"op":"remove","path":"/metadata/labels/none"}]`)), 422)
		}},
	{"patch/json-malformed", Required, concepts, "A JSON patch that is not a list of operations is rejected with 400.",
		[]need{verbs("create", "patch")}, func(s *session) {
			s.expectRefused(s.do("PATCH", s.path(s.create()), jsonPatch(`{"op":"add"}`)), 400)
		}},
	{"patch/merge-malformed", Required, concepts, "A merge patch that is not JSON is rejected with 400.",
		[]need{verbs("create", "patch")}, func(s *session) {
			s.expectRefused(s.do("PATCH", s.path(s.create()), text(typeMergePatch, `{"metadata":`)), 400)
		}},
	{"patch/strategic", Optional, concepts, "A strategic merge patch is accepted.", []need{verbs("create", "patch")},
		func(s *session) {
			obj := s.create()
			a := s.want(s.do("PATCH", s.path(obj), typed(typeStrategicPatch,
				metadata(map[string]any{"labels": map[string]any{"new": "yes"}}))), 200)
			if a.object().GetLabels()["new"] != "yes" {
				s.errorf("the labels are %v", a.object().GetLabels())
			}
		}},
	{"patch/strategic-merges", Optional, conventions,
		"A strategic merge patch adds elements to a merged list, such as the finalizers, and deletes the elements " +
			"that it lists.", []need{verbs("create", "patch")}, func(s *session) {
			obj := s.create(finalized)
			a := s.do("PATCH", s.path(obj), typed(typeStrategicPatch,
				metadata(map[string]any{"finalizers": []any{finalizer + "-2"}})))
			if got := s.want(a, 200).object().GetFinalizers(); len(got) != 2 {
				s.errorf("after one more the finalizers are %q, want two", got)
			}
			a = s.do("PATCH", s.path(obj), typed(typeStrategicPatch,
				metadata(map[string]any{"$deleteFromPrimitiveList/finalizers": []any{finalizer}})))
			if got := s.want(a, 200).object().GetFinalizers(); len(got) != 1 || got[0] != finalizer+"-2" {
				s.errorf("without the first the finalizers are %q, want the other", got)
			}
		}},
	{"patch/unknown-type", Required, concepts, "A patch with an unknown media type is rejected with 415.",
		[]need{verbs("create", "patch")}, func(s *session) {
			s.expectRefused(s.do("PATCH", s.path(s.create()), text("application/unknown-patch+json", `{}`)), 415)
		}},
	{"patch/missing", Required, concepts, "A patch of an object that does not exist returns 404.",
		[]need{verbs("patch")}, func(s *session) {
			s.expectRefused(s.do("PATCH", s.path(s.object()), mergePatch(
				metadata(map[string]any{"labels": map[string]any{"a": "b"}}))), 404)
		}},
	{"patch/no-change", Required, concepts, "A patch that changes nothing keeps the resourceVersion.",
		[]need{verbs("create", "patch")}, func(s *session) {
			s.expectNoChange(s.create(), func(obj *unstructured.Unstructured) *response {
				return s.do("PATCH", s.path(obj), mergePatch(map[string]any{}))
			})
		}},
	{"patch/conflict", Required, concepts,
		"A patch with another resourceVersion than the object's is rejected with 409.",
		[]need{verbs("create", "patch")}, func(s *session) {
			obj := s.create()
			s.patch(obj, metadata(map[string]any{"labels": map[string]any{"a": "b"}}))
			s.expectRefused(s.do("PATCH", s.path(obj), mergePatch(
				metadata(map[string]any{"resourceVersion": obj.GetResourceVersion(),
					"labels": map[string]any{"a": "c"}}))), 409)
		}},
	{"patch/other-uid", Required, concepts, "A patch with another uid than the object's is rejected with 409.",
		[]need{verbs("create", "patch")}, func(s *session) {
			obj := s.create()
			s.expectRefused(s.do("PATCH", s.path(obj), mergePatch(
				metadata(map[string]any{"uid": "11111111-2222-3333-4444-555555555555"}))), 409, 422)
		}},
	{"patch/name", Required, concepts, "A patch of the name is rejected.", []need{verbs("create", "patch")},
		func(s *session) {
			s.expectRefused(s.do("PATCH", s.path(s.create()), mergePatch(metadata(map[string]any{"name": s.name()}))),
				400,
				422)
		}},
	{"patch/invalid", Required, conventions, "A patch that makes the object invalid is rejected with 422.",
		[]need{verbs("create", "patch"), anInvalidChange}, func(s *session) {
			obj := s.create()
			s.expectRefused(s.do("PATCH", s.path(obj), mergePatch(s.r.target.Invalid)), 422)
			if firstDifference(s.r.target.Invalid, s.get(obj).Object, "") == "" {
				s.errorf("the object has the invalid fields")
			}
		}},
	{"patch/generation", Recommended, conventions,
		"A patch of the content increments the generation, and a patch of the metadata does not.",
		[]need{verbs("create", "patch"), aChange}, func(s *session) {
			obj := s.create()
			if obj.GetGeneration() == 0 {
				s.skipf("objects have no generation")
			}
			same := s.patch(obj, metadata(map[string]any{"labels": map[string]any{"a": "b"}}))
			changed := s.patch(obj, s.r.target.Change)
			if same.GetGeneration() != obj.GetGeneration() || changed.GetGeneration() != obj.GetGeneration()+1 {
				s.errorf("the generation was %d, %d after a label, %d after a change of the content",
					obj.GetGeneration(),
					same.GetGeneration(), changed.GetGeneration())
			}
		}},
	{"patch/collection", Recommended, concepts, "PATCH of the collection returns 405.", nil, func(s *session) {
		s.want(s.permitted(s.do("PATCH", s.collection(), mergePatch(map[string]any{}))), 405)
	}},
}

// permitted skips the check if the user may not send the request.
func (s *session) permitted(a *response) *response {
	if a.Code == 403 {
		s.skipf("the user has no permission: %s", a)
	}
	return a
}

const appliers = "applier"

// applied returns an apply configuration that sets labels.
func (s *session) applied(name string, labels map[string]any) map[string]any {
	obj := s.object()
	labels = maps.Clone(labels)
	maps.Copy(labels, s.labels())
	obj.SetName(name)
	_ = unstructured.SetNestedMap(obj.Object, labels, "metadata", "labels") // the path exists
	return obj.Object
}

// apply applies labels as a manager.
func (s *session) apply(name, manager string, labels map[string]any, options ...option) *response {
	path := s.collection() + "/" + name
	a := s.do("PATCH", path, append(options, typed(typeApply, s.applied(name, labels)),
		query("fieldManager", manager))...)
	if a.Code == 201 {
		s.created(a)
	}
	return a
}

// shares applies an element of a list in the metadata as each of two managers. Both elements must
// exist until the first manager applies without its own.
func (s *session) shares(field string, element func(manager string) any,
	read func(*unstructured.Unstructured) []string) {
	name := s.name()
	apply := func(manager string, elements ...any) []string {
		applied := s.applied(name, map[string]any{})
		if len(elements) > 0 {
			_ = unstructured.SetNestedSlice(applied, elements, "metadata", field) // the path exists
		}
		a := s.want(s.do("PATCH", s.collection()+"/"+name, typed(typeApply, applied), query("fieldManager", manager)),
			200, 201)
		s.objects = append(s.objects, s.collection()+"/"+name)
		return read(a.object())
	}
	first := apply("first", element("first"))
	both := apply("second", element("second"))
	if len(first) != 1 || len(both) != 2 || !slices.Contains(both, first[0]) {
		s.fatalf("after one manager the elements are %q, after two %q", first, both)
	}
	if left := apply("first"); len(left) != 1 || left[0] == first[0] {
		s.errorf("after the first manager left its element out, the elements are %q, want that of the second", left)
	}
}

var applyChecks = []Check{
	{"apply/create", Required, applying, "An apply of an object that does not exist creates it, and returns 201.",
		[]need{verbs("create", "patch")}, func(s *session) {
			name := s.name()
			obj := s.want(s.apply(name, appliers, map[string]any{"a": "1"}), 201).object()
			s.managed(obj, appliers, "Apply")
			if obj.GetLabels()["a"] != "1" || s.get(obj).GetUID() != obj.GetUID() {
				s.errorf("got labels %v", obj.GetLabels())
			}
		}},
	{"apply/across-versions", Required, applying,
		"An apply in another version of the group keeps the fields of other managers.",
		[]need{verbs("create", "patch"), otherVersions}, func(s *session) {
			for _, version := range s.r.discovered.otherVersions {
				s.appliedAcross(version)
			}
		}},
	{"apply/repeated", Required, applying, "Repeating the same apply changes nothing, and returns 200.",
		[]need{verbs("create", "patch")}, func(s *session) {
			name := s.name()
			obj := s.want(s.apply(name, appliers, map[string]any{"a": "1"}), 201).object()
			s.expectNoChange(obj, func(*unstructured.Unstructured) *response {
				return s.apply(name, appliers,
					map[string]any{"a": "1"})
			})
		}},
	{"apply/yaml", Required, applying, "An apply can be YAML.", []need{verbs("create", "patch")}, func(s *session) {
		obj := s.create()
		a := s.do("PATCH", s.path(obj),
			text(typeApply, "apiVersion: "+s.apiVersion()+"\nkind: "+s.kind()+"\nmetadata:\n  labels: {yaml: 'yes'} "+
				"# a comment\n"), query("fieldManager", appliers))
		if got := s.want(a, 200, 422); got.Code == 200 && got.object().GetLabels()["yaml"] != "yes" {
			s.errorf("the labels are %v", got.object().GetLabels())
		} else if got.Code == 422 && !strings.Contains(string(got.Body), "required") &&
			!strings.Contains(string(got.Body), "Required") {
			s.errorf("%s: got %s", got.request, got)
		}
	}},
	{"apply/removed", Required, applying, "A field that its only manager leaves out is removed.",
		[]need{verbs("create", "patch")}, func(s *session) {
			name := s.name()
			s.want(s.apply(name, appliers, map[string]any{"a": "1", "b": "1"}), 201)
			obj := s.want(s.apply(name, appliers, map[string]any{"a": "1"}), 200).object()
			if _, ok := obj.GetLabels()["b"]; ok || obj.GetLabels()["a"] != "1" {
				s.errorf("the labels are %v, want a and not b", obj.GetLabels())
			}
		}},
	{"apply/conflict", Required, applying,
		"A change to a field of another manager is rejected with 409, and the cause contains the field and the " +
			"manager.",
		[]need{verbs("create", "patch")}, func(s *session) {
			name := s.name()
			s.want(s.apply(name, "first", map[string]any{"a": "1"}), 201)
			status := s.expectRefused(s.apply(name, "second", map[string]any{"a": "2"}), 409)
			if status.Details == nil || len(status.Details.Causes) != 1 {
				s.fatalf("the details are %+v, want one cause", status.Details)
			}
			cause := status.Details.Causes[0]
			if cause.Type != metav1.CauseTypeFieldManagerConflict || cause.Field != ".metadata.labels.a" ||
				!strings.Contains(cause.Message, `"first"`) {
				s.errorf("the cause is %+v, want a FieldManagerConflict with first about .metadata.labels.a", cause)
			}
		}},
	{"apply/conflict-changes-nothing", Required, applying, "A conflict changes nothing.",
		[]need{verbs("create", "patch")}, func(s *session) {
			name := s.name()
			obj := s.want(s.apply(name, "first", map[string]any{"a": "1"}), 201).object()
			s.expectRefused(s.apply(name, "second", map[string]any{"a": "2", "b": "2"}), 409)
			if labels := s.get(obj).GetLabels(); labels["a"] != "1" || labels["b"] != "" {
				s.errorf("the labels are %v", labels)
			}
		}},
	{"apply/conflict-with-update", Required, applying,
		"A field that an update set belongs to the manager of the update.",
		[]need{verbs("create", "patch")}, func(s *session) {
			obj := s.create(labelled("a", "1"))
			s.expectRefused(s.apply(obj.GetName(), "second", map[string]any{"a": "2"}), 409)
		}},
	{"apply/force", Required, applying, "With force, the field and its manager change.",
		[]need{verbs("create", "patch")}, func(s *session) {
			name := s.name()
			s.want(s.apply(name, "first", map[string]any{"forced": "1"}), 201)
			obj := s.want(s.apply(name, "second", map[string]any{"forced": "2"}, query("force", "true")), 200).object()
			if obj.GetLabels()["forced"] != "2" {
				s.errorf("the labels are %v", obj.GetLabels())
			}
			if entry := s.managed(obj, "second", "Apply"); !strings.Contains(entry.FieldsV1.GetRawString(),
				`"f:forced"`) {
				s.errorf("the second manager does not own the field: %s", entry.FieldsV1.GetRawString())
			}
			for _, entry := range obj.GetManagedFields() {
				if entry.Manager == "first" && strings.Contains(entry.FieldsV1.GetRawString(), `"f:forced"`) {
					s.errorf("the first manager still owns the field: %s", entry.FieldsV1.GetRawString())
				}
			}
		}},
	{"apply/shared", Required, applying,
		"Two managers with the same value share a field, which remains until both leave it out.",
		[]need{verbs("create", "patch")}, func(s *session) {
			name := s.name()
			s.want(s.apply(name, "first", map[string]any{"a": "1"}), 201)
			s.want(s.apply(name, "second", map[string]any{"a": "1"}), 200)
			if obj := s.want(s.apply(name, "first", map[string]any{}), 200).object(); obj.GetLabels()["a"] != "1" {
				s.errorf("after one left it out, the labels are %v", obj.GetLabels())
			}
			if obj := s.want(s.apply(name, "second", map[string]any{}), 200).object(); obj.GetLabels()["a"] != "" {
				s.errorf("after both left it out, the labels are %v", obj.GetLabels())
			}
		}},
	{"apply/list-set", Required, applying,
		"Each manager owns its elements in a list of the type set, such as the finalizers.",
		[]need{verbs("create", "patch")}, func(s *session) {
			s.shares("finalizers", func(manager string) any { return finalizer + "-" + manager },
				func(obj *unstructured.Unstructured) []string { return obj.GetFinalizers() })
		}},
	{"apply/list-map", Required, applying,
		"Each manager owns its elements in a list of the type map, such as the owner references.",
		[]need{verbs("create", "patch")}, func(s *session) {
			s.dependent(reference(s.create())) // skips the check if the server replaces references
			var owners []types.UID
			s.shares("ownerReferences", func(string) any {
				owner := s.create() // an existing object, which the garbage collector finds
				owners = append(owners, owner.GetUID())
				return map[string]any{"apiVersion": owner.GetAPIVersion(), "kind": owner.GetKind(),
					"name": owner.GetName(), "uid": string(owner.GetUID())}
			}, func(obj *unstructured.Unstructured) (out []string) {
				for _, r := range obj.GetOwnerReferences() {
					if slices.Contains(owners, r.UID) { // the server may add others
						out = append(out, string(r.UID))
					}
				}
				return out
			})
		}},
	{"apply/without-manager", Required, applying, "An apply without fieldManager is rejected.",
		[]need{verbs("create", "patch")}, func(s *session) {
			obj := s.create()
			s.expectRefused(s.do("PATCH", s.path(obj), typed(typeApply, s.applied(obj.GetName(), map[string]any{}))),
				400,
				422)
		}},
	{"apply/force-other-patches", Recommended, applying, "force is rejected for any patch other than an apply.",
		[]need{verbs("create", "patch")}, func(s *session) {
			s.expectRefused(s.do("PATCH", s.path(s.create()), mergePatch(map[string]any{}), query("force", "true")),
				400,
				422)
		}},
	{"apply/managed-fields-in-body", Required, applying, "An apply whose body has managedFields is rejected with 400.",
		[]need{verbs("create", "patch")}, func(s *session) {
			obj := s.create()
			applied := s.applied(obj.GetName(), map[string]any{})
			_ = unstructured.SetNestedSlice(applied, []any{map[string]any{"manager": "x", "operation": "Apply",
				"apiVersion": s.apiVersion()}}, "metadata", "managedFields")
			s.expectRefused(s.do("PATCH", s.path(obj), typed(typeApply, applied), query("fieldManager", appliers)), 400)
		}},
	{"apply/managed-fields-cleared", Required, applying, "A patch of managedFields with one empty entry clears them.",
		[]need{verbs("create", "patch")}, func(s *session) {
			obj := s.create()
			s.patch(obj, metadata(map[string]any{"managedFields": []any{map[string]any{}}}))
			for _, entry := range s.get(obj).GetManagedFields() {
				if entry.Manager == "conformance" {
					s.errorf("the manager still exists: %+v", entry)
				}
			}
		}},
	{"apply/managed-fields-empty-list", Recommended, "https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apimachinery/pkg/util/managedfields/internal/managedfields.go",
		"A patch of managedFields with an empty list clears them too.",
		[]need{verbs("create", "patch")}, func(s *session) {
			obj := s.create()
			s.patch(obj, metadata(map[string]any{"managedFields": []any{}}))
			for _, entry := range s.get(obj).GetManagedFields() {
				if entry.Manager == "conformance" {
					s.errorf("the manager still exists: %+v", entry)
				}
			}
		}},
	{"apply/name-in-body", Required, applying, "An apply with different names in the body and in the URL is rejected.",
		[]need{verbs("create", "patch")}, func(s *session) {
			obj := s.create()
			s.expectRefused(s.do("PATCH", s.path(obj), typed(typeApply, s.applied(s.name(), map[string]any{})),
				query("fieldManager", appliers)), 400, 422)
		}},
	{"apply/other-version", Required, applying, "An apply with a body of another API is rejected with 400.",
		[]need{verbs("create", "patch")}, func(s *session) {
			obj := s.create()
			applied := s.applied(obj.GetName(), map[string]any{})
			applied["apiVersion"] = "another.example.com/v1"
			s.expectRefused(s.do("PATCH", s.path(obj), typed(typeApply, applied), query("fieldManager", appliers)), 400)
		}},
	{"apply/unknown-field", Recommended, applying,
		"An apply with a field that is not in the schema is rejected with 400 or 422.",
		[]need{verbs("create", "patch")},
		func(s *session) {
			obj := s.create()
			applied := s.applied(obj.GetName(), map[string]any{})
			applied["noSuchField"] = "x"
			s.expectRefused(s.do("PATCH", s.path(obj), typed(typeApply, applied), query("fieldManager", appliers),
				query("fieldValidation", "Strict")), 400, 422)
		}},
	{"apply/wrong-type", Recommended, applying,
		"An apply with a field of the wrong type, or with a duplicate element of a set, is rejected with 400 or 422.",
		[]need{verbs("create", "patch")}, func(s *session) {
			obj := s.create()
			for _, wrong := range []any{map[string]any{"a": "b"}, []any{finalizer, finalizer}} {
				applied := s.applied(obj.GetName(), map[string]any{})
				applied["metadata"].(map[string]any)["finalizers"] = wrong
				s.expectRefused(s.do("PATCH", s.path(obj), typed(typeApply, applied), query("fieldManager", appliers)),
					400,
					422)
			}
		}},
	{"apply/uid", Required, applying, "An apply with another uid than the object's is rejected with 409.",
		[]need{verbs("create", "patch")}, func(s *session) {
			obj := s.create()
			applied := s.applied(obj.GetName(), map[string]any{})
			_ = unstructured.SetNestedField(applied, "11111111-2222-3333-4444-555555555555", "metadata", "uid")
			s.expectRefused(s.do("PATCH", s.path(obj), typed(typeApply, applied), query("fieldManager", appliers)), 409,
				422)
		}},
	{"apply/resource-version", Required, applying, "An apply with an old resourceVersion is rejected with 409.",
		[]need{verbs("create", "patch")}, func(s *session) {
			obj := s.create()
			s.patch(obj, metadata(map[string]any{"labels": map[string]any{"a": "b"}}))
			applied := s.applied(obj.GetName(), map[string]any{"c": "d"})
			_ = unstructured.SetNestedField(applied, obj.GetResourceVersion(), "metadata", "resourceVersion")
			s.expectRefused(s.do("PATCH", s.path(obj), typed(typeApply, applied), query("fieldManager", appliers)), 409)
		}},
	{"apply/status-ownership", Required, applying,
		"Fields that are applied to the status belong to an entry of the subresource.",
		[]need{verbs("create", "patch"), subresource("status"), aStatus}, func(s *session) {
			obj := s.create()
			applied := s.merged(&unstructured.Unstructured{Object: s.applied(obj.GetName(), map[string]any{})},
				s.r.target.Status)
			a := s.want(s.do("PATCH", s.path(obj)+"/status", typed(typeApply, applied),
				query("fieldManager", "observer"),
				query("force", "true")), 200)
			if entry := s.managed(a.object(), "observer", "Apply"); entry.Subresource != "status" ||
				!strings.Contains(entry.FieldsV1.GetRawString(), `"f:status"`) {
				s.errorf("the entry has the subresource %q with %s, want status", entry.Subresource,
					entry.FieldsV1.GetRawString())
			}
		}},
}

var dryRunChecks = []Check{
	{"dry-run/create", Required, concepts, "A dry run of a create returns 201, and creates nothing.",
		[]need{verbs("create", "get")}, func(s *session) {
			obj := s.object()
			got := s.want(s.do("POST", s.collection(), body(obj), query("dryRun", "All")), 201).object()
			if got.GetUID() == "" || got.GetName() != obj.GetName() {
				s.errorf("the response has uid %q and name %q", got.GetUID(), got.GetName())
			}
			s.expectRefused(s.do("GET", s.path(obj)), 404)
		}},
	{"dry-run/create-invalid", Required, concepts, "A dry run of an invalid object is rejected like a real request.",
		[]need{verbs("create")}, func(s *session) {
			obj := s.object()
			obj.SetName("a/b")
			s.invalid(s.do("POST", s.collection(), body(obj), query("dryRun", "All")), "metadata.name")
		}},
	{"dry-run/already-exists", Required, concepts, "A dry run of a create of an existing object is rejected with 409.",
		[]need{verbs("create")}, func(s *session) {
			obj := s.object()
			obj.SetName(s.create().GetName())
			s.expectRefused(s.do("POST", s.collection(), body(obj), query("dryRun", "All")), 409)
		}},
	{"dry-run/update", Required, concepts, "A dry run of an update returns the result, and changes nothing.",
		[]need{verbs("create", "update")}, func(s *session) {
			obj := s.get(s.create())
			labelled("dry", "yes")(obj)
			a := s.want(s.do("PUT", s.path(obj), body(obj), query("dryRun", "All")), 200, 409)
			if a.Code == 200 && a.object().GetLabels()["dry"] != "yes" {
				s.errorf("the response has the labels %v", a.object().GetLabels())
			}
			s.untouched(obj)
		}},
	{"dry-run/patch", Required, concepts, "A dry run of a patch returns the result, and changes nothing.",
		[]need{verbs("create", "patch")}, func(s *session) {
			obj := s.create()
			if got := s.patch(obj, metadata(map[string]any{"labels": map[string]any{"dry": "yes"}}),
				query("dryRun", "All")); got.GetLabels()["dry"] != "yes" {
				s.errorf("the response has the labels %v", got.GetLabels())
			}
			s.untouched(obj)
		}},
	{"dry-run/apply", Required, concepts, "A dry run of an apply creates nothing.", []need{verbs("create", "patch")},
		func(s *session) {
			obj := s.object()
			a := s.do("PATCH", s.path(obj), typed(typeApply, s.applied(obj.GetName(), map[string]any{})),
				query("fieldManager", appliers), query("dryRun", "All"))
			s.want(a, 201)
			s.expectRefused(s.do("GET", s.path(obj)), 404)
		}},
	{"dry-run/delete", Required, concepts, "A dry run of a delete deletes nothing.", []need{verbs("create", "delete")},
		func(s *session) {
			obj := s.create()
			s.want(s.do("DELETE", s.path(obj), query("dryRun", "All")), 200)
			s.untouched(obj)
		}},
	{"dry-run/deletecollection", Required, concepts, "A dry run of deleting a collection deletes nothing.",
		[]need{verbs("create", "deletecollection"), confined}, func(s *session) {
			s.apart()
			obj := s.create()
			s.want(s.deleteCollection(query("labelSelector", s.selector()), query("dryRun", "All")), 200)
			s.untouched(obj)
		}},
	{"dry-run/no-events", Required, concepts, "A watch sees no event of a dry run.",
		[]need{verbs("create", "patch", "list", "watch")}, func(s *session) {
			obj := s.create()
			w := s.watchOwn(s.now())
			s.want(s.do("POST", s.collection(), body(s.object()), query("dryRun", "All")), 201)
			s.patch(obj, metadata(map[string]any{"labels": map[string]any{"dry": "yes"}}), query("dryRun", "All"))
			marker := s.create()
			for {
				e := w.next()
				if e.object().GetLabels()["dry"] != "" || e.Type == "ADDED" &&
					e.object().GetName() != marker.GetName() {
					s.fatalf("got %s, want nothing of the dry run", e)
				}
				if e.Type == "ADDED" {
					return
				}
			}
		}},
	{"dry-run/resource-version", Recommended, concepts, "The response to a dry run of a create has no resourceVersion.",
		[]need{verbs("create")}, func(s *session) {
			obj := s.want(s.do("POST", s.collection(), body(s.object()), query("dryRun", "All")), 201).object()
			if obj.GetResourceVersion() != "" {
				s.errorf("the resourceVersion is %s", obj.GetResourceVersion())
			}
		}},
	{"dry-run/status", Required, concepts, "A dry run of a patch of the status changes nothing.",
		[]need{verbs("create"), subresource("status"), aStatus}, func(s *session) {
			obj := s.create()
			s.want(s.do("PATCH", s.path(obj)+"/status", mergePatch(s.r.target.Status), query("dryRun", "All")), 200)
			if firstDifference(s.r.target.Status, s.get(obj).Object, "") == "" {
				s.errorf("the status changed")
			}
		}},
	{"dry-run/unknown-other-verbs", Required, concepts,
		"Other values of dryRun than All are rejected for updates, patches and deletions too.",
		[]need{verbs("create", "update", "patch")}, func(s *session) {
			obj := s.create()
			labelled("dry", "yes")(obj)
			some := query("dryRun", "Some")
			s.expectRefused(s.do("PUT", s.path(obj), body(obj), some), 400, 422)
			s.expectRefused(s.do("PATCH", s.path(obj), mergePatch(
				metadata(map[string]any{"labels": map[string]any{"dry": "yes"}})), some), 400, 422)
			s.expectRefused(s.do("DELETE", s.path(obj), some), 400, 422)
			s.untouched(obj)
		}},
	{"dry-run/unknown", Required, concepts, "Other values of dryRun than All are rejected.", []need{verbs("create")},
		func(s *session) {
			obj := s.object()
			s.expectRefused(s.do("POST", s.collection(), body(obj), query("dryRun", "Some")), 400, 422)
			s.expectRefused(s.do("GET", s.path(obj)), 404)
		}},
}

// untouched fails the check unless an object exists without the label of a dry run.
func (s *session) untouched(obj *unstructured.Unstructured) {
	got := s.get(obj)
	if got.GetUID() != obj.GetUID() || got.GetLabels()["dry"] != "" || got.GetDeletionTimestamp() != nil {
		s.errorf("after the dry run, the object has the labels %v and deletionTimestamp %v", got.GetLabels(),
			got.GetDeletionTimestamp())
	}
}

var fieldValidationChecks = []Check{
	{"field-validation/strict", Required, kep("2885-server-side-unknown-field-validation"),
		"With fieldValidation=Strict, an unknown field is rejected with 400, and the message contains its name.",
		[]need{verbs("create")},
		func(s *session) {
			s.unknown(s.do("POST", s.collection(), body(s.withUnknown()), query("fieldValidation", "Strict")))
		}},
	{"field-validation/strict-duplicate", Required, kep("2885-server-side-unknown-field-validation"),
		"With fieldValidation=Strict, a duplicate field is rejected with 400.", []need{verbs("create")},
		func(s *session) {
			a := s.do("POST", s.collection(), s.twice(), query("fieldValidation", "Strict"))
			if status := s.expectRefused(a, 400); !strings.Contains(status.Message, "duplicate") {
				s.errorf("the message is %q, want that a field is duplicate", status.Message)
			}
		}},
	{"field-validation/strict-patch", Required, kep("2885-server-side-unknown-field-validation"),
		"With fieldValidation=Strict, a patch with an unknown field is rejected.", []need{verbs("create", "patch")},
		func(s *session) {
			a := s.do("PATCH", s.path(s.create()), mergePatch(map[string]any{"noSuchField": "x"}),
				query("fieldValidation", "Strict"))
			if status := s.expectRefused(a, 400, 422); !strings.Contains(status.Message, "noSuchField") {
				s.errorf("the message is %q, want the name of the field", status.Message)
			}
		}},
	{"field-validation/strict-update", Required, kep("2885-server-side-unknown-field-validation"),
		"With fieldValidation=Strict, an update with an unknown field is rejected.", []need{verbs("create", "update")},
		func(s *session) {
			obj := s.get(s.create())
			obj.Object["noSuchField"] = "x"
			s.unknown(s.do("PUT", s.path(obj), body(obj), query("fieldValidation", "Strict")))
		}},
	{"field-validation/warn", Required, kep("2885-server-side-unknown-field-validation"),
		"With fieldValidation=Warn, an unknown field is dropped, with a warning that contains its name.",
		[]need{verbs("create")},
		func(s *session) {
			a := s.want(s.do("POST", s.collection(), body(s.withUnknown()), query("fieldValidation", "Warn")), 201)
			obj := s.created(a)
			s.warned(a, "noSuchField")
			if _, ok := obj.Object["noSuchField"]; ok {
				s.errorf("the field is stored")
			}
		}},
	{"field-validation/ignore", Required, kep("2885-server-side-unknown-field-validation"),
		"With fieldValidation=Ignore, an unknown field is dropped without a warning.", []need{verbs("create")},
		func(s *session) {
			a := s.want(s.do("POST", s.collection(), body(s.withUnknown()), query("fieldValidation", "Ignore")), 201)
			obj := s.created(a)
			if warning := strings.Join(a.Header.Values("Warning"), "; "); strings.Contains(warning, "noSuchField") {
				s.errorf("the warnings are %q, want none about the field", warning)
			}
			if _, ok := obj.Object["noSuchField"]; ok {
				s.errorf("the field is stored")
			}
		}},
	{"field-validation/unknown", Recommended, kep("2885-server-side-unknown-field-validation"),
		"Other values of fieldValidation are rejected.", []need{verbs("create")}, func(s *session) {
			s.expectRefused(s.do("POST", s.collection(), body(s.object()), query("fieldValidation", "Maybe")), 400, 422)
		}},
}

func (s *session) withUnknown() *unstructured.Unstructured {
	obj := s.object()
	obj.Object["noSuchField"] = "x"
	return obj
}

// twice sets the body to an object in which the field kind is duplicated.
func (s *session) twice() option {
	return func(r *request) {
		body(s.object())(r)
		r.body = append([]byte(`{"kind":"`+s.kind()+`",`), r.body[1:]...)
	}
}

func (s *session) unknown(a *response) {
	status := s.expectRefused(a, 400)
	if !strings.Contains(status.Message, `unknown field "noSuchField"`) {
		s.errorf("the message is %q, want: unknown field \"noSuchField\"", status.Message)
	}
}

var statusChecks = []Check{
	{"status/get", Required, conventions, "A read of the subresource status returns the object.",
		[]need{verbs("create"), subresource("status")}, func(s *session) {
			obj := s.create()
			if got := s.want(s.do("GET", s.path(obj)+"/status"), 200).object(); got.GetUID() != obj.GetUID() ||
				got.GetKind() != s.kind() {
				s.errorf("got %s %s, want the object", got.GetKind(), got.GetName())
			}
		}},
	{"status/patch", Required, conventions, "A patch of the subresource changes the status.",
		[]need{verbs("create"), subresource("status"), aStatus}, func(s *session) {
			obj := s.create()
			s.want(s.do("PATCH", s.path(obj)+"/status", mergePatch(s.r.target.Status)), 200)
			if missing := firstDifference(s.r.target.Status, s.get(obj).Object, ""); missing != "" {
				s.errorf("%s", missing)
			}
		}},
	{"status/update", Required, conventions, "An update of the subresource changes the status.",
		[]need{verbs("create"), subresource("status"), aStatus}, func(s *session) {
			obj := s.create()
			s.unconflicted(func() *response {
				return s.do("PUT", s.path(obj)+"/status", body(s.merged(s.get(obj), s.r.target.Status)))
			})
			if missing := firstDifference(s.r.target.Status, s.get(obj).Object, ""); missing != "" {
				s.errorf("%s", missing)
			}
		}},
	{"status/content-unchanged", Required, conventions, "A patch of the subresource does not change the content.",
		[]need{verbs("create"), subresource("status"), aStatus, aChange}, func(s *session) {
			obj := s.create()
			both := s.merged(&unstructured.Unstructured{Object: s.r.target.Status}, s.r.target.Change)
			s.want(s.do("PATCH", s.path(obj)+"/status", mergePatch(both.Object)), 200)
			if firstDifference(s.r.target.Change, s.get(obj).Object, "") == "" {
				s.errorf("the content changed")
			}
		}},
	{"status/unchanged-by-patch", Required, conventions, "A patch of the object does not change the status.",
		[]need{verbs("create", "patch"), subresource("status"), aStatus}, func(s *session) {
			obj := s.create()
			s.patch(obj, s.r.target.Status)
			if firstDifference(s.r.target.Status, s.get(obj).Object, "") == "" {
				s.errorf("the status changed")
			}
		}},
	{"status/generation", Recommended, conventions, "A change of the status keeps the generation.",
		[]need{verbs("create"), subresource("status"), aStatus}, func(s *session) {
			obj := s.create()
			changed := s.want(s.do("PATCH", s.path(obj)+"/status", mergePatch(s.r.target.Status)), 200).object()
			if changed.GetGeneration() != obj.GetGeneration() {
				s.errorf("the generation was %d and is %d", obj.GetGeneration(), changed.GetGeneration())
			}
		}},
	{"status/conflict", Required, concepts,
		"An update of the subresource with an old resourceVersion is rejected with 409.",
		[]need{verbs("create", "patch"), subresource("status"), aStatus}, func(s *session) {
			obj := s.create()
			s.patch(obj, metadata(map[string]any{"labels": map[string]any{"a": "b"}}))
			s.expectRefused(s.do("PUT", s.path(obj)+"/status", body(s.merged(obj, s.r.target.Status))), 409)
		}},
	{"status/missing", Required, concepts, "The status of an object that does not exist returns 404.",
		[]need{subresource("status")}, func(s *session) {
			s.expectRefused(s.do("GET", s.path(s.object())+"/status"), 404)
			s.expectRefused(s.do("PATCH", s.path(s.object())+"/status",
				mergePatch(map[string]any{"status": map[string]any{}})), 404)
		}},
	{"status/watched", Required, concepts, "A change of the status is an event of a watch.",
		[]need{verbs("create", "watch"), subresource("status"), aStatus}, func(s *session) {
			obj := s.create()
			w := s.watch(s.collection(), query("fieldSelector", "metadata.name="+obj.GetName()),
				query("resourceVersion", obj.GetResourceVersion()))
			changed := s.want(s.do("PATCH", s.path(obj)+"/status", mergePatch(s.r.target.Status)), 200).object()
			for {
				if e := w.expect("MODIFIED",
					obj.GetName()); e.object().GetResourceVersion() == changed.GetResourceVersion() {
					return
				}
			}
		}},
	{"status/unchanged-by-update", Required, conventions, "An update of the object keeps the status.",
		[]need{verbs("create", "update"), subresource("status"), aStatus}, func(s *session) {
			obj := s.create()
			s.want(s.do("PATCH", s.path(obj)+"/status", mergePatch(s.r.target.Status)), 200)
			changed := s.update(obj, func(u *unstructured.Unstructured) {
				delete(u.Object, "status")
				labelled("updated", "yes")(u)
			})
			if missing := firstDifference(s.r.target.Status, changed.Object, ""); missing != "" {
				s.errorf("%s", missing)
			}
		}},
}

// replicas returns the replicas in the spec of an object's scale.
func (s *session) replicas(obj *unstructured.Unstructured) int64 {
	scale := s.want(s.do("GET", s.path(obj)+"/scale"), 200).object()
	n, _, _ := unstructured.NestedInt64(scale.Object, "spec", "replicas") // a missing field means 0
	return n
}

var scaleChecks = []Check{
	{"scale/get", Required, conventions, "A read of the subresource scale returns the Scale of the object.",
		[]need{verbs("create"), subresource("scale")}, func(s *session) {
			obj := s.create()
			scale := s.want(s.do("GET", s.path(obj)+"/scale"), 200).object()
			if scale.GetKind() != "Scale" || scale.GetAPIVersion() != "autoscaling/v1" ||
				scale.GetName() != obj.GetName() || scale.GetUID() != obj.GetUID() {
				s.errorf("got %s %s %s with uid %s, want the Scale of %s %s", scale.GetAPIVersion(), scale.GetKind(),
					scale.GetName(), scale.GetUID(), obj.GetName(), obj.GetUID())
			}
		}},
	{"scale/patch", Required, conventions, "A patch of the scale changes the object, and its generation.",
		[]need{verbs("create"), subresource("scale")}, func(s *session) {
			obj := s.create()
			want := s.replicas(obj) + 1
			scale := s.want(s.do("PATCH", s.path(obj)+"/scale",
				mergePatch(map[string]any{"spec": map[string]any{"replicas": want}})), 200).object()
			if n, _, _ := unstructured.NestedInt64(scale.Object, "spec", "replicas"); n != want {
				s.errorf("the response has %d replicas, want %d", n, want)
			}
			changed := s.get(obj)
			if changed.GetGeneration() == obj.GetGeneration() && obj.GetGeneration() != 0 ||
				reflect.DeepEqual(content(obj), content(changed)) {
				s.errorf("the object did not change: generation %d, %v", changed.GetGeneration(), content(changed))
			}
		}},
	{"scale/update", Required, conventions, "An update of the scale changes the object.",
		[]need{verbs("create"), subresource("scale")}, func(s *session) {
			obj := s.create()
			want := s.replicas(obj) + 1
			s.unconflicted(func() *response {
				scale := s.want(s.do("GET", s.path(obj)+"/scale"), 200).object()
				// no error is possible: the path is missing or has an int64
				_ = unstructured.SetNestedField(scale.Object, want, "spec", "replicas")
				return s.do("PUT", s.path(obj)+"/scale", body(scale))
			})
			if n := s.replicas(obj); n != want {
				s.errorf("got %d replicas, want %d", n, want)
			}
		}},
	{"scale/owned", Required, applying,
		"A manager that changes the scale owns the replicas, in an entry of the subresource.",
		[]need{verbs("create", "patch"), subresource("scale")}, func(s *session) {
			obj := s.create()
			s.want(s.do("PATCH", s.path(obj)+"/scale", mergePatch(
				map[string]any{"spec": map[string]any{"replicas": s.replicas(obj) + 1}}), query("fieldManager",
				"scaler")), 200)
			entries := s.get(obj).GetManagedFields() // the response to the patch has no managedFields
			if !slices.ContainsFunc(entries, func(e metav1.ManagedFieldsEntry) bool {
				return e.Manager == "scaler" && e.Subresource == "scale" && e.FieldsV1 != nil &&
					strings.Contains(e.FieldsV1.GetRawString(), "f:replicas")
			}) {
				s.errorf("managedFields are %+v, want an entry of scaler for the subresource scale with the replicas",
					entries)
			}
		}},
	{"scale/conflict", Required, concepts, "An update of the scale with an old resourceVersion is rejected with 409.",
		[]need{verbs("create", "patch"), subresource("scale")}, func(s *session) {
			obj := s.create()
			scale := s.want(s.do("GET", s.path(obj)+"/scale"), 200).object()
			s.patch(obj, metadata(map[string]any{"labels": map[string]any{"a": "b"}}))
			s.expectRefused(s.do("PUT", s.path(obj)+"/scale", body(scale)), 409)
		}},
	{"scale/invalid", Required, conventions, "A negative number of replicas is rejected with 422.",
		[]need{verbs("create"), subresource("scale")}, func(s *session) {
			s.invalid(s.do("PATCH", s.path(s.create())+"/scale",
				mergePatch(map[string]any{"spec": map[string]any{"replicas": -1}})), "spec.replicas")
		}},
	{"scale/missing", Required, concepts, "The scale of an object that does not exist returns 404.",
		[]need{subresource("scale")}, func(s *session) {
			s.expectRefused(s.do("GET", s.path(s.object())+"/scale"), 404)
		}},
}
