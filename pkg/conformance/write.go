// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

var nameChecks = []Check{
	{"names/generated", Required, names, "generateName creates a name from the prefix and a suffix.",
		[]need{verbs("create")}, func(s *session) {
			prefix := s.name() + "-"
			obj := s.create(generated(prefix))
			if !strings.HasPrefix(obj.GetName(), prefix) || len(obj.GetName()) == len(prefix) ||
				obj.GetGenerateName() != prefix {
				s.errorf("got the name %q and generateName %q, want %q and a suffix", obj.GetName(),
					obj.GetGenerateName(), prefix)
			}
		}},
	{"names/generated-distinct", Required, names, "Two objects with the same generateName have different names.",
		[]need{verbs("create")}, func(s *session) {
			prefix := s.name() + "-"
			if a, b := s.create(generated(prefix)), s.create(generated(prefix)); a.GetName() == b.GetName() {
				s.errorf("both objects have the name %q", a.GetName())
			}
		}},
	{"names/generated-long", Recommended, names,
		"A long generateName is shortened, so that the name has at most 63 characters.", []need{verbs("create")},
		func(s *session) {
			obj := s.create(generated((s.name() + strings.Repeat("x", 63))[:63]))
			if len(obj.GetName()) > 63 {
				s.errorf("the name has %d characters: %q", len(obj.GetName()), obj.GetName())
			}
		}},
	{"names/missing", Required, names,
		"An object without name and generateName is rejected with 422, and the cause contains the field.",
		[]need{verbs("create")},
		func(s *session) {
			obj := s.object()
			obj.SetName("")
			s.invalid(s.do("POST", s.collection(), body(obj)), "metadata.name")
		}},
	{"names/invalid", Required, names,
		"A name that cannot be a path segment is rejected with 422, and the cause contains the field.",
		[]need{verbs("create")},
		func(s *session) {
			obj := s.object()
			obj.SetName("a/b")
			s.invalid(s.do("POST", s.collection(), body(obj)), "metadata.name")
		}},
	{"names/already-exists", Required, concepts, "A second object with the same name is rejected with 409 AlreadyExists.",
		[]need{verbs("create")}, func(s *session) {
			obj := s.object()
			obj.SetName(s.create().GetName())
			status := s.expectRefused(s.do("POST", s.collection(), body(obj)), 409)
			if status.Reason != metav1.StatusReasonAlreadyExists {
				s.errorf("the reason is %q, want AlreadyExists", status.Reason)
			}
			if status.Details == nil || status.Details.Name != obj.GetName() || status.Details.Kind == "" {
				s.errorf("the details are %+v, want the name and the kind", status.Details)
			}
		}},
	{"names/reused", Required, concepts,
		"The name of a deleted object can be used again, by an object with another uid.",
		[]need{verbs("create", "delete")}, func(s *session) {
			old := s.create()
			s.deleteAndWait(old)
			obj := s.object()
			obj.SetName(old.GetName())
			again := s.created(s.want(s.do("POST", s.collection(), body(obj)), 201))
			if again.GetUID() == old.GetUID() {
				s.errorf("both have the uid %s", old.GetUID())
			}
		}},
	{"names/other-in-body", Required, concepts,
		"An update with different names in the body and in the URL is rejected with 400.",
		[]need{verbs("create", "update")},
		func(s *session) {
			obj := s.create()
			path := s.path(obj)
			obj.SetName(s.name())
			s.expectRefused(s.do("PUT", path, body(obj)), 400)
		}},
	{"names/other-namespace-in-body", Required, concepts,
		"An object with different namespaces in the body and in the URL is rejected with 400.",
		[]need{verbs("create"), namespaced}, func(s *session) {
			obj := s.object()
			obj.SetNamespace(s.aNamespace())
			s.expectRefused(s.do("POST", s.collection(), body(obj)), 400)
		}},
	{"names/namespace-from-url", Required, concepts, "An object without a namespace gets the namespace in the URL.",
		[]need{verbs("create"), namespaced}, func(s *session) {
			obj := s.object()
			obj.SetNamespace("")
			made := s.want(s.do("POST", s.collection(), body(obj)), 201).object()
			if made.GetNamespace() != s.namespace {
				s.errorf("got the namespace %q, want %q", made.GetNamespace(), s.namespace)
			}
			made.SetNamespace(s.namespace)
			s.objects = append(s.objects, s.path(made))
		}},
	{"names/namespace-missing", Required, concepts,
		"An object in a namespace that does not exist is rejected with 404.",
		[]need{verbs("create"), namespaced}, func(s *session) {
			obj := s.object()
			obj.SetNamespace("no-" + s.name())
			s.expectRefused(s.do("POST", s.collectionIn(s.r.discovered.gvr.Version, obj.GetNamespace()), body(obj)),
				404)
		}},
}

func generated(prefix string) func(*unstructured.Unstructured) {
	return func(obj *unstructured.Unstructured) {
		obj.SetName("")
		obj.SetGenerateName(prefix)
	}
}

// invalid fails the check unless a response is 422 with a cause for a field.
func (s *session) invalid(a *response, field string) {
	status := s.expectRefused(a, 422)
	var fields []string
	if status.Details != nil {
		for _, cause := range status.Details.Causes {
			fields = append(fields, cause.Field)
		}
	}
	if status.Reason != metav1.StatusReasonInvalid {
		s.errorf("the reason is %q, want Invalid", status.Reason)
	}
	if !slices.ContainsFunc(fields, func(f string) bool { return strings.HasPrefix(f, field) }) {
		s.errorf("the causes are about %q, want %s among them (%s)", fields, field, status.Message)
	}
}

// deleteAndWait deletes an object and waits until it no longer exists.
func (s *session) deleteAndWait(obj *unstructured.Unstructured) {
	s.want(s.do("DELETE", s.path(obj), query("propagationPolicy", "Background")), 200, 202)
	s.eventually("after the deletion", func() string {
		if a := s.do("GET", s.path(obj)); a.Code != 404 {
			return fmt.Sprintf("%s still exists", obj.GetName())
		}
		return ""
	})
}

var createChecks = []Check{
	{"create/response", Required, concepts,
		"A create returns 201 with the object and its kind.", []need{offers("create")},
		func(s *session) {
			if s.r.discovered.uncreated != "" {
				s.fatalf("%s", s.r.discovered.uncreated) // the other checks are skipped
			}
			obj := s.create()
			if obj.GetKind() != s.kind() || obj.GetAPIVersion() != s.apiVersion() {
				s.errorf("got %s %s, want %s %s", obj.GetAPIVersion(), obj.GetKind(), s.apiVersion(), s.kind())
			}
		}},
	{"create/system-fields", Required, conventions, "The server sets uid, creationTimestamp and resourceVersion.",
		[]need{verbs("create")}, func(s *session) {
			obj := s.create()
			if obj.GetUID() == "" || obj.GetResourceVersion() == "" {
				s.errorf("got uid %q and resourceVersion %q, want both", obj.GetUID(), obj.GetResourceVersion())
			}
			if age := time.Since(obj.GetCreationTimestamp().Time).Abs(); age > time.Hour {
				s.errorf("creationTimestamp is %s, want the present", obj.GetCreationTimestamp())
			}
		}},
	{"create/system-fields-of-client", Required, conventions,
		"The server ignores uid, creationTimestamp and deletionTimestamp of the client.", []need{verbs("create")},
		func(s *session) {
			obj := s.create(func(obj *unstructured.Unstructured) {
				obj.SetUID("11111111-2222-3333-4444-555555555555")
				obj.SetCreationTimestamp(metav1.Unix(1, 0))
				now := metav1.Now()
				obj.SetDeletionTimestamp(&now)
			})
			if obj.GetUID() == "11111111-2222-3333-4444-555555555555" || obj.GetCreationTimestamp().Unix() == 1 ||
				obj.GetDeletionTimestamp() != nil {
				s.errorf("got uid %s, creationTimestamp %s, deletionTimestamp %v, want the server's own", obj.GetUID(),
					obj.GetCreationTimestamp(), obj.GetDeletionTimestamp())
			}
		}},
	{"create/resource-version", Required, concepts, "An object with a resourceVersion is rejected.",
		[]need{verbs("create")}, func(s *session) {
			obj := s.object()
			obj.SetResourceVersion("1")
			s.expectRefused(s.do("POST", s.collection(), body(obj)), 400, 409, 422, 500)
		}},
	{"create/stored", Required, concepts,
		"A read returns the same object as the create.", []need{verbs("create", "get")},
		func(s *session) {
			obj := s.create()
			got := s.get(obj)
			if got.GetUID() != obj.GetUID() || !reflect.DeepEqual(content(obj), content(got)) ||
				!maps.Equal(obj.GetLabels(), got.GetLabels()) {
				s.errorf("created %v, read %v", obj.Object, got.Object)
			}
		}},
	{"create/content", Required, conventions, "The response has every field of the sample.", []need{verbs("create")},
		func(s *session) {
			want, got := s.object(), s.create()
			if missing := firstDifference(content(want), content(got), ""); missing != "" {
				s.errorf("%s", missing)
			}
		}},
	{"create/labels-and-annotations", Required, conventions, "Labels and annotations are stored.",
		[]need{verbs("create", "get")}, func(s *session) {
			obj := s.get(s.create(labelled("a.example.com/b", "c"), func(obj *unstructured.Unstructured) {
				obj.SetAnnotations(map[string]string{"d.example.com/e": "f\ng"})
			}))
			if obj.GetLabels()["a.example.com/b"] != "c" || obj.GetAnnotations()["d.example.com/e"] != "f\ng" {
				s.errorf("got labels %v and annotations %v", obj.GetLabels(), obj.GetAnnotations())
			}
		}},
	{"create/generation", Recommended, conventions,
		"If objects have a generation, the first one is 1, whatever the client sends.", []need{verbs("create")},
		func(s *session) {
			if s.create().GetGeneration() == 0 {
				s.skipf("objects have no generation")
			}
			obj := s.create(func(obj *unstructured.Unstructured) { obj.SetGeneration(7) })
			if obj.GetGeneration() != 1 {
				s.errorf("got generation %d, want 1", obj.GetGeneration())
			}
		}},
	{"create/status-dropped", Required, conventions,
		"The status of a new object is dropped if there is a subresource status.",
		[]need{verbs("create"), subresource("status"), aStatus}, func(s *session) {
			obj := s.create(func(obj *unstructured.Unstructured) {
				obj.Object = s.merged(obj, s.r.target.Status).Object
			})
			if firstDifference(s.r.target.Status, obj.Object, "") == "" {
				s.errorf("the status is %v, which the client sent", obj.Object["status"])
			}
		}},
	{"create/managed-fields", Required, applying,
		"managedFields has the client as a manager with the operation Update.", []need{verbs("create")},
		func(s *session) {
			s.managed(s.create(), "conformance", "Update")
		}},
	{"create/field-manager", Required, applying, "fieldManager sets the name of the manager.", []need{verbs("create")},
		func(s *session) {
			obj := s.created(s.want(s.do("POST", s.collection(), body(s.object()), query("fieldManager", "somebody")),
				201))
			s.managed(obj, "somebody", "Update")
		}},
	{"create/field-manager-of-client", Required, applying,
		"Without fieldManager, the manager is the User-Agent up to the first slash.", []need{verbs("create")},
		func(s *session) {
			a := s.want(s.do("POST", s.collection(), body(s.object()),
				header("User-Agent", "some-client/v1.2 (linux) more/3")), 201)
			s.managed(s.created(a), "some-client", "Update")
		}},
	{"create/field-manager-long", Recommended, applying, "A fieldManager of more than 128 characters is rejected.",
		[]need{verbs("create")}, func(s *session) {
			s.expectRefused(s.do("POST", s.collection(), body(s.object()),
				query("fieldManager", strings.Repeat("x", 129))), 400, 422)
		}},
	{"create/empty-body", Required, concepts, "An empty body is rejected with 400.", []need{verbs("create")},
		func(s *session) {
			s.expectRefused(s.do("POST", s.collection(), text("application/json", "")), 400)
		}},
	{"create/not-json", Required, concepts, "A body that is not JSON is rejected with 400.", []need{verbs("create")},
		func(s *session) {
			s.expectRefused(s.do("POST", s.collection(), text("application/json", `{"kind": `)), 400)
		}},
	{"create/other-kind", Required, concepts, "An object of another kind is rejected with 400 or 422.",
		[]need{verbs("create")}, func(s *session) {
			obj := s.object()
			obj.SetKind("Another")
			s.expectRefused(s.do("POST", s.collection(), body(obj)), 400, 422)
		}},
	{"create/other-version", Required, concepts, "An object of another API version is rejected with 400.",
		[]need{verbs("create")}, func(s *session) {
			obj := s.object()
			obj.SetAPIVersion("another.example.com/v1")
			s.expectRefused(s.do("POST", s.collection(), body(obj)), 400)
		}},
	{"create/wrong-type", Required, concepts, "A field of the wrong type is rejected with 400 or 422, never with 5xx.",
		[]need{verbs("create")}, func(s *session) {
			obj := s.object()
			_ = unstructured.SetNestedField(obj.Object, "text", "metadata", "labels")
			s.expectRefused(s.do("POST", s.collection(), body(obj)), 400, 422)
		}},
	{"create/invalid", Required, conventions,
		"An invalid object is rejected with 422, with a cause for each invalid field.",
		[]need{verbs("create"), anInvalidChange}, func(s *session) {
			obj := s.merged(s.object(), s.r.target.Invalid)
			status := s.expectRefused(s.do("POST", s.collection(), body(obj)), 422)
			if status.Reason != metav1.StatusReasonInvalid || status.Details == nil ||
				len(status.Details.Causes) == 0 ||
				status.Details.Causes[0].Field == "" {
				s.errorf("got reason %q and details %+v, want Invalid and a cause with a field", status.Reason,
					status.Details)
			}
		}},
	{"create/named-url", Recommended, concepts, "POST to the URL of an object returns 405.", []need{verbs("create")},
		func(s *session) {
			a := s.do("POST", s.collection()+"/"+s.name(), body(s.object()))
			if a.Code == 201 {
				s.created(a)
			}
			s.want(a, 405)
		}},
}

// firstDifference describes the first field of want that got lacks or that has another value, or
// returns "".
func firstDifference(want, got any, path string) string {
	switch want := want.(type) {
	case map[string]any:
		have, ok := got.(map[string]any)
		if !ok {
			return fmt.Sprintf("%s is %v, want an object", path, got)
		}
		for _, key := range slices.Sorted(maps.Keys(want)) {
			if value, ok := have[key]; !ok && !empty(want[key]) {
				return fmt.Sprintf("%s.%s is missing, want %v", path, key, want[key])
			} else if ok {
				if missing := firstDifference(want[key], value, path+"."+key); missing != "" {
					return missing
				}
			}
		}
	case []any:
		have, ok := got.([]any)
		if !ok || len(have) < len(want) {
			return fmt.Sprintf("%s is %v, want %v", path, got, want)
		}
		for i := range want {
			if missing := firstDifference(want[i], have[i], fmt.Sprintf("%s[%d]", path, i)); missing != "" {
				return missing
			}
		}
	default:
		if fmt.Sprint(want) != fmt.Sprint(got) {
			return fmt.Sprintf("%s is %v, want %v", path, got, want)
		}
	}
	return ""
}

// empty reports whether a value may be omitted.
func empty(value any) bool {
	v := reflect.ValueOf(value)
	return !v.IsValid() || v.IsZero() || (v.Kind() == reflect.Map || v.Kind() == reflect.Slice) && v.Len() == 0
}

// managed stops the check unless an object has a managedFields entry of a manager with an
// operation.
func (s *session) managed(obj *unstructured.Unstructured, manager, operation string) metav1.ManagedFieldsEntry {
	for _, entry := range obj.GetManagedFields() {
		if entry.Manager == manager && string(entry.Operation) == operation {
			if entry.APIVersion == "" || entry.FieldsType != "FieldsV1" || entry.FieldsV1 == nil || entry.Time == nil {
				s.errorf("the entry of %s is %+v, want apiVersion, fieldsType, fieldsV1 and time", manager, entry)
			}
			return entry
		}
	}
	s.fatalf("managedFields has no entry of %s with %s: %+v", manager, operation, obj.GetManagedFields())
	return metav1.ManagedFieldsEntry{}
}

var updateChecks = []Check{
	{"update/response", Required, concepts, "An update returns 200 with the new object.",
		[]need{verbs("create", "update")}, func(s *session) {
			obj := s.update(s.create(), labelled("updated", "yes"))
			if obj.GetLabels()["updated"] != "yes" || s.get(obj).GetLabels()["updated"] != "yes" {
				s.errorf("the label is not in %v", obj.GetLabels())
			}
		}},
	{"update/resource-version", Required, concepts, "A change creates a new resourceVersion.",
		[]need{verbs("create", "update")}, func(s *session) {
			obj := s.create()
			if changed := s.update(obj,
				labelled("updated", "yes")); changed.GetResourceVersion() == obj.GetResourceVersion() {
				s.errorf("the resourceVersion is still %s", obj.GetResourceVersion())
			}
		}},
	{"update/no-change", Required, concepts, "An update that changes nothing keeps the resourceVersion.",
		[]need{verbs("create", "update")}, func(s *session) {
			s.expectNoChange(s.create(), func(obj *unstructured.Unstructured) *response {
				return s.do("PUT",
					s.path(obj), body(obj))
			})
		}},
	{"update/conflict", Required, concepts, "An update with an old resourceVersion is rejected with 409 Conflict.",
		[]need{verbs("create", "update")}, func(s *session) {
			old := s.create()
			s.update(old, labelled("updated", "yes"))
			labelled("updated", "no")(old)
			if status := s.expectRefused(s.do("PUT", s.path(old), body(old)),
				409); status.Reason != metav1.StatusReasonConflict {
				s.errorf("the reason is %q, want Conflict", status.Reason)
			}
			if got := s.get(old).GetLabels()["updated"]; got != "yes" {
				s.errorf("the rejected update was applied: the label is %q", got)
			}
		}},
	{"update/other-uid", Required, concepts, "An update with another uid is rejected with 409 Conflict.",
		[]need{verbs("create", "update")}, func(s *session) {
			obj := s.create()
			obj.SetUID("11111111-2222-3333-4444-555555555555")
			s.expectRefused(s.do("PUT", s.path(obj), body(obj)), 409, 422)
		}},
	{"update/resource-version-malformed", Recommended, concepts,
		"An update with a malformed resourceVersion is rejected.", []need{verbs("create", "update")},
		func(s *session) {
			obj := s.create()
			obj.SetResourceVersion("abc")
			s.expectRefused(s.do("PUT", s.path(obj), body(obj)), 400, 422)
		}},
	{"update/missing", Required, concepts,
		"An update with a resourceVersion of an object that does not exist is rejected with 404 or 409.",
		[]need{verbs("update")}, func(s *session) {
			obj := s.object()
			obj.SetResourceVersion("1")
			a := s.do("PUT", s.path(obj), body(obj))
			if a.Code == 201 {
				s.created(a)
				s.skipf("an update of this kind creates objects")
			}
			s.expectRefused(a, 404, 409)
		}},
	{"update/creation-timestamp", Required, conventions, "An update keeps creationTimestamp and uid.",
		[]need{verbs("create", "update")}, func(s *session) {
			obj := s.create()
			changed := s.update(obj, func(u *unstructured.Unstructured) {
				labelled("updated", "yes")(u)
				u.SetCreationTimestamp(metav1.Unix(1, 0))
			})
			if changed.GetUID() != obj.GetUID() || changed.GetCreationTimestamp() != obj.GetCreationTimestamp() {
				s.errorf("got uid %s of %s, want %s of %s", changed.GetUID(),
					changed.GetCreationTimestamp(), obj.GetUID(),
					obj.GetCreationTimestamp())
			}
		}},
	{"update/generation", Recommended, conventions, "A change of the content increments the generation.",
		[]need{verbs("create", "update"), aChange}, func(s *session) {
			obj := s.create()
			if obj.GetGeneration() == 0 {
				s.skipf("objects have no generation")
			}
			changed := s.update(obj, func(u *unstructured.Unstructured) {
				u.Object = s.merged(u,
					s.r.target.Change).Object
			})
			if changed.GetGeneration() != obj.GetGeneration()+1 {
				s.errorf("the generation was %d and is %d", obj.GetGeneration(), changed.GetGeneration())
			}
		}},
	{"update/generation-of-metadata", Recommended, conventions, "A change of the metadata keeps the generation.",
		[]need{verbs("create", "update")}, func(s *session) {
			obj := s.create()
			if changed := s.update(obj, labelled("updated", "yes")); changed.GetGeneration() != obj.GetGeneration() {
				s.errorf("the generation was %d and is %d", obj.GetGeneration(), changed.GetGeneration())
			}
		}},
	{"update/generation-of-client", Recommended, conventions, "The server ignores a generation of the client.",
		[]need{verbs("create", "update")}, func(s *session) {
			obj := s.create()
			changed := s.update(obj, func(u *unstructured.Unstructured) {
				u.SetGeneration(99)
				labelled(
					"updated", "yes")(u)
			})
			if changed.GetGeneration() == 99 {
				s.errorf("the generation is the client's")
			}
		}},
	{"update/content", Required, concepts, "An update stores changed fields, and removes fields that it leaves out.",
		[]need{verbs("create", "update"), aChange}, func(s *session) {
			obj := s.create(labelled("first", "yes"))
			changed := s.update(obj, func(u *unstructured.Unstructured) {
				labels := u.GetLabels()
				delete(labels, "first")
				u.SetLabels(labels)
				u.Object = s.merged(u, s.r.target.Change).Object
			})
			if missing := firstDifference(s.r.target.Change, changed.Object, ""); missing != "" {
				s.errorf("%s", missing)
			}
			if _, ok := s.get(obj).GetLabels()["first"]; ok {
				s.errorf("the omitted label still exists")
			}
		}},
	{"update/invalid", Required, conventions, "An update that makes the object invalid is rejected with 422.",
		[]need{verbs("create", "update"), anInvalidChange}, func(s *session) {
			obj := s.merged(s.get(s.create()), s.r.target.Invalid)
			obj.SetResourceVersion("")
			a := s.do("PUT", s.path(obj), body(obj))
			if a.Code == 409 || a.Code == 422 && strings.Contains(string(a.Body), "metadata.resourceVersion") {
				current := s.get(obj)
				a = s.do("PUT", s.path(obj), body(s.merged(current, s.r.target.Invalid)))
			}
			s.expectRefused(a, 422)
		}},
	{"update/managed-fields", Required, applying, "An update records its manager for the changed fields.",
		[]need{verbs("create", "update")}, func(s *session) {
			obj := s.create()
			labelled("mine", "yes")(obj)
			current := s.get(obj)
			labelled("mine", "yes")(current)
			a := s.want(s.do("PUT", s.path(obj), body(current), query("fieldManager", "other")), 200, 409)
			if a.Code == 409 {
				s.skipf("another client writes the objects")
			}
			if entry := s.managed(a.object(), "other", "Update"); !strings.Contains(
				entry.FieldsV1.GetRawString(), `"f:mine"`) {
				s.errorf("the entry of the manager has no label: %s", entry.FieldsV1.GetRawString())
			}
		}},
	{"update/managed-fields-of-client", Required, applying,
		"An update without managedFields keeps them.", []need{verbs("create", "update")},
		func(s *session) {
			obj := s.create()
			changed := s.update(obj, func(u *unstructured.Unstructured) {
				u.SetManagedFields(nil)
				labelled(
					"updated", "yes")(u)
			})
			if len(changed.GetManagedFields()) == 0 {
				s.errorf("managedFields are missing")
			}
		}},
	{"update/unconditional", Recommended, concepts,
		"An update without a resourceVersion succeeds, whatever was written before.", []need{verbs("create", "update")},
		func(s *session) {
			obj := s.create()
			s.update(obj, labelled("updated", "yes"))
			obj.SetResourceVersion("")
			labelled("updated", "last")(obj)
			a := s.do("PUT", s.path(obj), body(obj))
			if a.Code == 422 && strings.Contains(string(a.Body), "metadata.resourceVersion") {
				s.skipf("the kind requires a resourceVersion in each update")
			}
			if got := s.want(a, 200).object().GetLabels()["updated"]; got != "last" {
				s.errorf("the label is %q, want that of the last update", got)
			}
		}},
	{"update/no-name", Required, concepts, "An update with a body without a name is rejected with 400.",
		[]need{verbs("create", "update")}, func(s *session) {
			obj := s.create()
			path := s.path(obj)
			obj.SetName("")
			s.expectRefused(s.do("PUT", path, body(obj)), 400)
		}},
	{"update/deletion-timestamp", Required, finalizing, "An update cannot start a deletion.",
		[]need{verbs("create", "update")}, func(s *session) {
			obj := s.get(s.create(finalized))
			now := metav1.Now()
			obj.SetDeletionTimestamp(&now)
			s.want(s.do("PUT", s.path(obj), body(obj)), 200, 409, 422)
			if s.get(obj).GetDeletionTimestamp() != nil {
				s.errorf("the object has a deletionTimestamp")
			}
		}},
	{"update/collection", Recommended, concepts, "PUT to the collection returns 405.", nil, func(s *session) {
		s.want(s.permitted(s.do("PUT", s.collection(), body(s.object()))), 405)
	}},
}

// expectNoChange fails the check unless a request that changes nothing keeps the resourceVersion.
// It tries three times, because controllers may write concurrently.
func (s *session) expectNoChange(obj *unstructured.Unstructured, send func(*unstructured.Unstructured) *response) {
	var versions []string
	for range 3 {
		before := s.get(obj)
		a := send(before)
		if a.Code == 409 {
			continue
		}
		after := s.want(a, 200).object()
		if before.GetResourceVersion() == after.GetResourceVersion() {
			return
		}
		versions = append(versions, before.GetResourceVersion()+" became "+after.GetResourceVersion())
	}
	s.errorf("the resourceVersion changed each time: %s", strings.Join(versions, ", "))
}
