// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

const finalizer = "conformance.example.com/hold"

func finalized(obj *unstructured.Unstructured) { obj.SetFinalizers([]string{finalizer}) }

var deleteChecks = []Check{
	{"delete/response", Required, concepts,
		"A deletion returns 200 with a Status or the object, and the object no longer exists.",
		[]need{verbs("create", "delete")}, func(s *session) {
			obj := s.create()
			a := s.want(s.do("DELETE", s.path(obj), query("propagationPolicy", "Background")), 200, 202)
			if kind := a.object().GetKind(); kind != "Status" && kind != s.kind() {
				s.errorf("the response is a %s, want a Status or the object", kind)
			}
			s.eventually("after the deletion", func() string {
				if a := s.do("GET", s.path(obj)); a.Code != 404 {
					return "the object still exists"
				}
				return ""
			})
		}},
	{"delete/details", Recommended, concepts,
		"The response identifies the deleted object: it is a Status with its name and uid, or the object.",
		[]need{verbs("create", "delete")}, func(s *session) {
			obj := s.create()
			got := s.want(s.do("DELETE", s.path(obj), query("propagationPolicy", "Background")), 200, 202).object()
			name, uid := got.GetName(), string(got.GetUID())
			if got.GetKind() == "Status" {
				name, _, _ = unstructured.NestedString(got.Object, "details", "name")
				uid, _, _ = unstructured.NestedString(got.Object, "details", "uid")
			}
			if name != obj.GetName() || uid != string(obj.GetUID()) {
				s.errorf("the response is %v, want the name %s and the uid %s", got.Object, obj.GetName(), obj.GetUID())
			}
		}},
	{"delete/no-options", Required, concepts, "An empty JSON object is accepted as DeleteOptions.",
		[]need{verbs("create", "delete")}, func(s *session) {
			s.want(s.do("DELETE", s.path(s.create()), text("application/json", "{}")), 200, 202)
		}},
	{"delete/period-malformed", Recommended, concepts,
		"A gracePeriodSeconds that is not a number is rejected with 400.",
		[]need{verbs("create", "delete")}, func(s *session) {
			obj := s.create()
			s.expectRefused(s.do("DELETE", s.path(obj), query("gracePeriodSeconds", "soon")), 400)
			s.get(obj)
		}},
	{"delete/missing", Required, concepts, "The deletion of an object that does not exist returns 404 NotFound.",
		[]need{verbs("delete")}, func(s *session) {
			if status := s.expectRefused(s.do("DELETE", s.path(s.object())),
				404); status.Reason != metav1.StatusReasonNotFound {
				s.errorf("the reason is %q, want NotFound", status.Reason)
			}
		}},
	{"delete/precondition-uid", Required, concepts, "A deletion with another uid as precondition is rejected with 409.",
		[]need{verbs("create", "delete")}, func(s *session) {
			obj := s.create()
			s.expectRefused(s.do("DELETE", s.path(obj), options(
				map[string]any{"preconditions": map[string]any{"uid": "11111111-2222-3333-4444-555555555555"}})), 409)
			s.get(obj)
		}},
	{"delete/precondition-resource-version", Required, concepts,
		"A deletion with an old resourceVersion as precondition is rejected with 409.",
		[]need{verbs("create", "delete", "patch")}, func(s *session) {
			obj := s.create()
			s.patch(obj, metadata(map[string]any{"labels": map[string]any{"a": "b"}}))
			s.expectRefused(s.do("DELETE", s.path(obj), options(
				map[string]any{"preconditions": map[string]any{"resourceVersion": obj.GetResourceVersion()}})), 409)
			s.get(obj)
		}},
	{"delete/preconditions-met", Required, concepts, "A deletion whose preconditions are met succeeds.",
		[]need{verbs("create", "delete")}, func(s *session) {
			obj := s.create()
			s.want(s.do("DELETE", s.path(obj), options(map[string]any{"preconditions": map[string]any{"uid": string(
				obj.GetUID())}, "propagationPolicy": "Background"})), 200, 202)
		}},
	{"delete/finalizer", Required, finalizing,
		"An object with a finalizer keeps existing with a deletionTimestamp until the last finalizer is removed.",
		[]need{verbs("create", "delete", "patch")}, func(s *session) {
			obj := s.create(finalized)
			s.want(s.do("DELETE", s.path(obj), query("propagationPolicy", "Background")), 200, 202)
			if held := s.get(obj); held.GetDeletionTimestamp() == nil {
				s.errorf("the object exists without deletionTimestamp")
			}
			s.release(s.path(obj))
			s.eventually("after the finalizer was removed", func() string {
				if a := s.do("GET", s.path(obj)); a.Code != 404 {
					return "the object still exists"
				}
				return ""
			})
		}},
	{"delete/finalizer-too-late", Required, finalizing,
		"A finalizer cannot be added to an object that is being deleted: 422 or 403.",
		[]need{verbs("create", "delete", "patch")},
		func(s *session) {
			obj := s.create(finalized)
			s.want(s.do("DELETE", s.path(obj), query("propagationPolicy", "Background")), 200, 202)
			s.expectRefused(s.do("PATCH", s.path(obj), mergePatch(
				metadata(map[string]any{"finalizers": []any{finalizer, "other.example.com/late"}}))), 422, 403)
		}},
	{"delete/timestamp-unchanged", Required, finalizing, "A second deletion does not change the deletionTimestamp.",
		[]need{verbs("create", "delete")}, func(s *session) {
			obj := s.create(finalized)
			s.want(s.do("DELETE", s.path(obj)), 200, 202)
			first := s.get(obj).GetDeletionTimestamp()
			s.want(s.do("DELETE", s.path(obj)), 200, 202, 409)
			if second := s.get(obj).GetDeletionTimestamp(); first == nil || second == nil || !first.Equal(second) {
				s.errorf("the deletionTimestamp was %v and is %v", first, second)
			}
		}},
	{"delete/timestamp-of-client", Required, finalizing, "A client cannot remove the deletionTimestamp.",
		[]need{verbs("create", "delete", "patch")}, func(s *session) {
			obj := s.create(finalized)
			s.want(s.do("DELETE", s.path(obj)), 200, 202)
			s.do("PATCH", s.path(obj), mergePatch(metadata(map[string]any{"deletionTimestamp": nil})))
			if s.get(obj).GetDeletionTimestamp() == nil {
				s.errorf("the deletionTimestamp is gone")
			}
		}},
	{"delete/foreground", Required, deleting, "A foreground deletion sets the finalizer foregroundDeletion.",
		[]need{verbs("create", "delete")}, func(s *session) {
			s.propagated(metav1.DeletePropagationForeground, metav1.FinalizerDeleteDependents)
		}},
	{"delete/orphan", Required, deleting, "A deletion that orphans dependents sets the finalizer orphan.",
		[]need{verbs("create", "delete")}, func(s *session) {
			s.propagated(metav1.DeletePropagationOrphan, metav1.FinalizerOrphanDependents)
		}},
	{"delete/policy-unknown", Required, deleting, "An unknown propagationPolicy is rejected with 422 or 400.",
		[]need{verbs("create", "delete")}, func(s *session) {
			obj := s.create()
			s.expectRefused(s.do("DELETE", s.path(obj), query("propagationPolicy", "Sideways")), 422, 400)
			s.get(obj)
		}},
	{"delete/policy-conflict", Required, deleting,
		"A propagationPolicy together with orphanDependents is rejected with 422 or 400.",
		[]need{verbs("create", "delete")}, func(s *session) {
			obj := s.create()
			s.expectRefused(s.do("DELETE", s.path(obj), options(
				map[string]any{"propagationPolicy": "Orphan", "orphanDependents": true})), 422, 400)
			s.get(obj)
		}},
	{"delete/options-malformed", Required, concepts, "A body that is not DeleteOptions is rejected with 400.",
		[]need{verbs("create", "delete")}, func(s *session) {
			obj := s.create()
			s.expectRefused(s.do("DELETE", s.path(obj), text("application/json", `{"preconditions": "no"}`)), 400)
			s.get(obj)
		}},
	{"delete/watched", Required, concepts, "A watch sees the deletion with the last state and a newer resourceVersion.",
		[]need{verbs("create", "delete", "watch")}, func(s *session) {
			obj := s.create(labelled("last", "state"))
			w := s.watch(s.collection(), query("labelSelector", s.selector()),
				query("resourceVersion", obj.GetResourceVersion()))
			s.want(s.do("DELETE", s.path(obj), query("propagationPolicy", "Background")), 200, 202)
			for {
				e := w.next()
				if e.Type == "MODIFIED" {
					continue // by a controller
				}
				if e.Type != "DELETED" || e.object().GetUID() != obj.GetUID() ||
					e.object().GetLabels()["last"] != "state" ||
					e.object().GetResourceVersion() == obj.GetResourceVersion() {
					s.errorf("got %s, want DELETED with the labels and a new resourceVersion", e)
				}
				return
			}
		}},
	{"delete/dependents", Required, deleting, "The garbage collector deletes the dependents of a deleted object.",
		[]need{verbs("create", "delete", "list", "watch")}, func(s *session) {
			owner := s.create()
			dependent := s.dependent(reference(owner))
			s.want(s.do("DELETE", s.path(owner), query("propagationPolicy", "Background")), 200, 202)
			s.collected(dependent, owner)
		}},
	{"delete/foreground-waits", Required, deleting,
		"A foreground deletion of an object completes after the deletion of the dependents that block it.",
		[]need{verbs("create", "delete", "list", "watch", "patch")}, func(s *session) {
			owner := s.create()
			blocking := reference(owner)
			blocking.BlockOwnerDeletion = new(true)
			dependent := s.dependent(blocking, finalized)
			if len(dependent.GetOwnerReferences()) > 1 {
				s.skipf("the server adds an owner reference, so the garbage collector keeps the dependent")
			}
			s.want(s.do("DELETE", s.path(owner), query("propagationPolicy", "Foreground")), 200, 202)
			s.eventually("after the owner was deleted in the foreground", func() string {
				if s.get(dependent).GetDeletionTimestamp() == nil {
					return "the dependent is not being deleted"
				}
				return ""
			})
			s.get(owner)
			s.release(s.path(dependent))
			s.eventually("after the dependent has gone", func() string {
				if a := s.do("GET", s.path(owner)); a.Code != 404 {
					return "the owner still exists"
				}
				return ""
			})
		}},
	{"delete/orphaned", Required, deleting,
		"Dependents keep existing without the owner reference if the deletion orphans them.",
		[]need{verbs("create", "delete", "list", "watch", "patch")}, func(s *session) {
			owner := s.create()
			dependent := s.dependent(reference(owner))
			// The garbage collector orphans the dependents that it has seen, and sees them in the order of
			// their creation.
			last := s.create()
			seen := s.dependent(reference(last))
			s.want(s.do("DELETE", s.path(last)), 200, 202)
			s.collected(seen, last)
			s.want(s.do("DELETE", s.path(owner), query("propagationPolicy", "Orphan")), 200, 202)
			s.eventually("after the owner was deleted", func() string {
				if a := s.do("GET", s.path(owner)); a.Code != 404 {
					return "the owner still exists"
				}
				if owned(s.get(dependent), owner.GetUID()) {
					return "the dependent has the owner reference"
				}
				return ""
			})
		}},
	{"delete/owner-of-another-kind", Required, deleting,
		"The garbage collector deletes an object whose owner, of another kind, was deleted.",
		[]need{verbs("create", "delete", "list", "watch"), namespaced}, func(s *session) {
			configMaps := "/api/v1/namespaces/" + s.namespace + "/configmaps"
			owner := s.want(s.do("POST", configMaps, body(map[string]any{
				"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": s.name(),
					"labels": s.labels()},
			})), 201).object()
			s.objects = append(s.objects, configMaps+"/"+owner.GetName())
			dependent := s.dependent(reference(owner))
			s.want(s.do("DELETE", configMaps+"/"+owner.GetName()), 200)
			s.collected(dependent, owner)
		}},
	{"delete/namespace-terminating", Required, finalizing,
		"An object with a finalizer blocks the deletion of its namespace. Meanwhile no object can be created in " +
			"the namespace, and existing ones can be changed.",
		[]need{verbs("create", "delete", "deletecollection", "patch"), namespaced},
		func(s *session) {
			s.apart()
			obj := s.create(finalized)
			path := "/api/v1/namespaces/" + s.namespace
			s.want(s.do("DELETE", path), 200, 202)
			s.eventually("after the namespace was deleted", func() string { // the server learns this by a watch
				a := s.do("POST", s.collection(), body(s.object()))
				if a.Code == 201 {
					s.created(a)
					return "an object was created"
				}
				s.expectRefused(a, 403)
				return ""
			})
			s.eventually("after the namespace was deleted", func() string {
				if s.get(obj).GetDeletionTimestamp() == nil {
					return "the object is not being deleted"
				}
				return ""
			})
			s.patch(obj, metadata(map[string]any{"labels": map[string]any{"a": "b"}}))
			s.want(s.do("GET", path), 200)
			s.release(s.path(obj))
			s.eventually("after the finalizer was removed", func() string {
				if a := s.do("GET", path); a.Code != 404 {
					return "the namespace still exists"
				}
				return ""
			})
		}},
	{"delete/namespace", Required, concepts, "The deletion of a namespace deletes the objects in it.",
		[]need{verbs("create", "delete", "deletecollection"), namespaced}, func(s *session) {
			namespace := s.aNamespace()
			obj := s.create(func(obj *unstructured.Unstructured) { obj.SetNamespace(namespace) })
			s.want(s.do("DELETE", "/api/v1/namespaces/"+namespace), 200, 202)
			s.eventually("after the namespace was deleted", func() string {
				if a := s.do("GET", s.path(obj)); a.Code != 404 {
					return "the object still exists"
				}
				return ""
			})
		}},
}

// dependent creates an object with an owner reference. The server may add references of its own. If
// it replaces the reference, dependent skips the check.
func (s *session) dependent(of metav1.OwnerReference,
	change ...func(*unstructured.Unstructured)) *unstructured.Unstructured {
	obj := s.create(append(change, func(obj *unstructured.Unstructured) {
		obj.SetOwnerReferences([]metav1.OwnerReference{of})
	})...)
	if len(obj.GetOwnerReferences()) > 0 && !owned(obj, of.UID) {
		s.skipf("the server replaces the owner references of a new object")
	}
	return obj
}

// owned reports whether an object has an owner reference with a uid.
func owned(obj *unstructured.Unstructured, uid types.UID) bool {
	return slices.ContainsFunc(obj.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.UID == uid })
}

// collected waits until the garbage collector has deleted the dependent of a deleted owner. Of a
// dependent to which the server added another owner, it waits until the owner reference is removed.
func (s *session) collected(dependent, owner *unstructured.Unstructured) {
	s.eventually("after the owner was deleted", func() string {
		switch a := s.do("GET", s.path(dependent)); {
		case a.Code == 404:
			return ""
		case len(dependent.GetOwnerReferences()) < 2:
			return "the dependent still exists"
		case owned(s.want(a, 200).object(), owner.GetUID()):
			return "the dependent still has the owner reference"
		}
		return ""
	})
}

// reference returns an owner reference to an object.
func reference(owner *unstructured.Unstructured) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: owner.GetAPIVersion(), Kind: owner.GetKind(), Name: owner.GetName(),
		UID: owner.GetUID()}
}

// options returns a body with DeleteOptions.
func options(fields map[string]any) option {
	all := map[string]any{"apiVersion": "v1", "kind": "DeleteOptions"}
	maps.Copy(all, fields)
	return body(all)
}

// propagated deletes an object that has a finalizer, and fails the check unless the response has
// the finalizer of the policy.
func (s *session) propagated(policy metav1.DeletionPropagation, want string) {
	obj := s.create(finalized)
	a := s.want(s.do("DELETE", s.path(obj), query("propagationPolicy", string(policy))), 200, 202)
	// The garbage collector may remove the finalizer before a second request.
	if got := a.object(); got.GetKind() != s.kind() || !slices.Contains(got.GetFinalizers(), want) {
		s.errorf("the response is %s with the finalizers %q, want %s among them", got.GetKind(),
			got.GetFinalizers(), want)
	}
}

var collectionChecks = []Check{
	{"deletecollection/selected", Required, concepts,
		"Deleting a collection deletes the selected objects, and no others.",
		[]need{verbs("create", "deletecollection", "list"), confined}, func(s *session) {
			s.apart()
			doomed, kept := s.create(labelled("doomed", "yes")), s.create()
			s.want(s.deleteCollection(query("labelSelector", s.selector()+",doomed=yes"),
				query("propagationPolicy", "Background")), 200)
			s.eventually("after the deletion", func() string {
				if a := s.do("GET", s.path(doomed)); a.Code != 404 {
					return "the selected object still exists"
				}
				return ""
			})
			s.get(kept)
		}},
	{"deletecollection/by-name", Required, concepts, "Deleting a collection supports a field selector.",
		[]need{verbs("create", "deletecollection", "list"), confined}, func(s *session) {
			s.apart()
			doomed, kept := s.create(), s.create()
			s.want(s.deleteCollection(query("labelSelector", s.selector()),
				query("fieldSelector", "metadata.name="+doomed.GetName()),
				query("propagationPolicy", "Background")), 200)
			s.eventually("after the deletion", func() string {
				if a := s.do("GET", s.path(doomed)); a.Code != 404 {
					return "the selected object still exists"
				}
				return ""
			})
			s.get(kept)
		}},
	{"deletecollection/response", Recommended, concepts, "The response is a list of the deleted objects.",
		[]need{verbs("create", "deletecollection", "list"), confined}, func(s *session) {
			s.apart()
			want := s.some(2)
			a := s.want(s.deleteCollection(query("labelSelector", s.selector()),
				query("propagationPolicy", "Background")), 200)
			if got := a.names(); !slices.Equal(slices.Sorted(slices.Values(got)), want) {
				s.errorf("the response has %q, want %q", got, want)
			}
		}},
	{"deletecollection/no-match", Required, concepts,
		"Deleting a collection succeeds if the selector matches no object.",
		[]need{verbs("deletecollection"), confined}, func(s *session) {
			s.apart()
			s.want(s.deleteCollection(query("labelSelector", s.selector())), 200)
		}},
	{"deletecollection/finalizer", Required, finalizing, "Deleting a collection waits for finalizers.",
		[]need{verbs("create", "deletecollection"), confined}, func(s *session) {
			s.apart()
			obj := s.create(finalized)
			s.want(s.deleteCollection(query("labelSelector", s.selector()), query("propagationPolicy", "Background")),
				200)
			if s.get(obj).GetDeletionTimestamp() == nil {
				s.errorf("the object has no deletionTimestamp")
			}
		}},
	{"deletecollection/selector-malformed", Required, selecting,
		"A malformed selector is rejected with 400, and nothing is deleted.",
		[]need{verbs("create", "deletecollection"), confined}, func(s *session) {
			s.apart()
			obj := s.create()
			s.expectRefused(s.deleteCollection(query("labelSelector", s.selector()+",!!")), 400)
			s.get(obj)
		}},
	{"deletecollection/options", Required, concepts, "Deleting a collection accepts DeleteOptions in the body.",
		[]need{verbs("create", "deletecollection"), confined}, func(s *session) {
			s.apart()
			obj := s.create()
			s.want(s.deleteCollection(query("labelSelector", s.selector()),
				options(map[string]any{"dryRun": []any{"All"}})), 200)
			s.get(obj)
		}},
}

var getChecks = []Check{
	{"get/missing", Required, concepts,
		"An object that does not exist returns 404 NotFound, with a Status that contains its name.",
		[]need{verbs("get")}, func(s *session) {
			obj := s.object()
			status := s.expectRefused(s.do("GET", s.path(obj)), 404)
			if status.Reason != metav1.StatusReasonNotFound || status.Details == nil ||
				status.Details.Name != obj.GetName() || !strings.Contains(status.Message, obj.GetName()) {
				s.errorf("got reason %q, details %+v and message %q, want NotFound and the name", status.Reason,
					status.Details, status.Message)
			}
		}},
	{"get/any-version", Required, concepts,
		"A read with resourceVersion=0 returns the object.", []need{verbs("create", "get")},
		func(s *session) {
			obj := s.create()
			s.eventually("with resourceVersion=0", func() string {
				if a := s.do("GET", s.path(obj), query("resourceVersion", "0")); a.Code != 200 {
					return "got " + a.String()
				}
				return ""
			})
		}},
	{"get/not-older", Required, concepts, "A read with a resourceVersion does not return an older object.",
		[]need{verbs("create", "get", "patch")}, func(s *session) {
			obj := s.create()
			changed := s.patch(obj, metadata(map[string]any{"labels": map[string]any{"a": "b"}}))
			got := s.want(s.do("GET", s.path(obj), query("resourceVersion", changed.GetResourceVersion())),
				200).object()
			if got.GetLabels()["a"] != "b" {
				s.errorf("got the labels %v of resourceVersion %s, want those of %s", got.GetLabels(),
					got.GetResourceVersion(), changed.GetResourceVersion())
			}
		}},
	{"get/malformed-version", Recommended, concepts, "A malformed resourceVersion is rejected with 400 or 422.",
		[]need{verbs("create", "get")}, func(s *session) {
			s.expectRefused(s.do("GET", s.path(s.create()), query("resourceVersion", "abc")), 400, 422)
		}},
	{"get/future-version", Required, concepts,
		"A resourceVersion in the future returns 504 Timeout, and tells clients to retry, or 410.",
		[]need{verbs("create", "get")}, func(s *session) {
			status := s.expectRefused(s.do("GET", s.path(s.create()), query("resourceVersion", future)), 504, 410)
			if status.Code == 410 { // a server whose replicas have different resourceVersions
				return
			}
			if status.Reason != metav1.StatusReasonTimeout || status.Details == nil ||
				status.Details.RetryAfterSeconds == 0 {
				s.errorf("got reason %q and details %+v, want Timeout and retryAfterSeconds", status.Reason,
					status.Details)
			}
		}},
	{"get/head", Optional, concepts, "HEAD returns 200 or 405, without a body.", []need{verbs("create", "get")},
		func(s *session) {
			if a := s.want(s.do("HEAD", s.path(s.create())), 200, 405); len(a.Body) > 0 {
				s.errorf("the body has %d bytes", len(a.Body))
			}
		}},
	{"get/own-writes", Required, kep("2340-Consistent-reads-from-cache"),
		"A read without a resourceVersion sees the preceding write.", []need{verbs("create", "get", "patch")},
		func(s *session) {
			obj := s.create()
			for i := range 10 {
				s.patch(obj, metadata(map[string]any{"labels": map[string]any{"count": fmt.Sprint(i)}}))
				if got := s.get(obj).GetLabels()["count"]; got != fmt.Sprint(i) {
					s.fatalf("after the write of %d, read %s", i, got)
				}
			}
		}},
}

// future is a resourceVersion that the etcd of a test does not reach.
const future = "9000000000000000000"
