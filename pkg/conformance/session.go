// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// ownLabel is on every object of a run; its value says of which check.
const ownLabel = "conformance.example.com/check"

// session is one check at work.
type session struct {
	ctx    context.Context
	r      *runner
	check  Check
	number int
	next   atomic.Int32

	messages   []string
	exchanges  []Exchange
	objects    []string // paths of what was created
	namespaces []string
	// namespace is that of the run, or apart the check's own; empty if the resource is in none.
	namespace string
	watches   []*watcher
}

// ended is what a check panics with to end early.
type ended struct{ reason string }

func (s *session) errorf(format string, args ...any) {
	s.messages = append(s.messages, fmt.Sprintf(format, args...))
}

func (s *session) fatalf(format string, args ...any) {
	s.errorf(format, args...)
	panic(ended{})
}

// skipf ends a check that cannot be made here.
func (s *session) skipf(format string, args ...any) {
	panic(ended{fmt.Sprintf(format, args...)})
}

// facts of the resource, by which checks are shorter.
func (s *session) kind() string       { return s.r.facts.resource.Kind }
func (s *session) apiVersion() string { return s.r.facts.gvr.GroupVersion().String() }
func (s *session) label() string      { return fmt.Sprintf("%s-%d", s.r.id, s.number) }
func (s *session) selector() string   { return ownLabel + "=" + s.label() }

// name is one that no other object has.
func (s *session) name() string {
	return fmt.Sprintf("conformance-%s-%d-%d", s.r.id, s.number, s.next.Add(1))
}

// groupPath is the path of a version of the group.
func (s *session) groupPath(version string) string {
	if s.r.facts.gvr.Group == "" {
		return "/api/" + version
	}
	return "/apis/" + s.r.facts.gvr.Group + "/" + version
}

// collectionIn is the path of the resource in a namespace and a version.
func (s *session) collectionIn(version, namespace string) string {
	path := s.groupPath(version)
	if namespace != "" && s.r.facts.resource.Namespaced {
		path += "/namespaces/" + namespace
	}
	return path + "/" + s.r.facts.gvr.Resource
}

// collection is the path of the resource, in the namespace of the run.
func (s *session) collection() string {
	return s.collectionIn(s.r.facts.gvr.Version, s.namespace)
}

// path is that of an object.
func (s *session) path(obj *unstructured.Unstructured) string {
	return s.collectionIn(s.r.facts.gvr.Version, obj.GetNamespace()) + "/" + obj.GetName()
}

// in is the path of an object in another version.
func (s *session) in(version string, obj *unstructured.Unstructured) string {
	return s.collectionIn(version, obj.GetNamespace()) + "/" + obj.GetName()
}

// object is a valid one that was not sent yet.
func (s *session) object() *unstructured.Unstructured {
	obj := s.r.target.Sample.DeepCopy()
	for _, field := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink", "generateName", "ownerReferences", "finalizers"} {
		unstructured.RemoveNestedField(obj.Object, "metadata", field)
	}
	unstructured.RemoveNestedField(obj.Object, "status")
	obj.SetName(s.name())
	obj.SetNamespace(s.namespace)
	labels := maps.Clone(obj.GetLabels())
	if labels == nil {
		labels = map[string]string{}
	}
	labels[ownLabel] = s.label()
	obj.SetLabels(labels)
	return obj
}

// create makes an object, and sees to it that it goes.
func (s *session) create(change ...func(*unstructured.Unstructured)) *unstructured.Unstructured {
	obj := s.object()
	for _, c := range change {
		c(obj)
	}
	path := s.collectionIn(s.r.facts.gvr.Version, obj.GetNamespace())
	a := s.do("POST", path, body(obj))
	if a.Code != 201 {
		s.fatalf("create an object: got %s, want 201", a)
	}
	return s.created(a)
}

// created notes what an answer says was made.
func (s *session) created(a *answer) *unstructured.Unstructured {
	obj := a.object()
	s.objects = append(s.objects, s.path(obj))
	return obj
}

// get reads an object again.
func (s *session) get(obj *unstructured.Unstructured) *unstructured.Unstructured {
	return s.want(s.do("GET", s.path(obj)), 200).object()
}

// want ends the check unless an answer has one of the codes.
func (s *session) want(a *answer, codes ...int) *answer {
	if slices.Contains(codes, a.Code) {
		return a
	}
	s.fatalf("%s: got %s, want %s", a.request, a, join(codes))
	return nil
}

// refused ends the check unless an answer is a Status with one of the codes.
func (s *session) refused(a *answer, codes ...int) *metav1.Status {
	s.want(a, codes...)
	status := &metav1.Status{}
	if err := json.Unmarshal(a.Body, status); err != nil || status.Kind != "Status" || status.Status != metav1.StatusFailure || int(status.Code) != a.Code {
		s.fatalf("%s: the body is %.300q, want a Status that says Failure and code %d", a.request, a.Body, a.Code)
	}
	return status
}

func join(codes []int) string {
	var out []string
	for _, code := range codes {
		out = append(out, fmt.Sprint(code))
	}
	return strings.Join(out, " or ")
}

// merged is an object after a merge patch.
func (s *session) merged(obj *unstructured.Unstructured, patch map[string]any) *unstructured.Unstructured {
	have, err := json.Marshal(obj.Object)
	if err == nil {
		var change []byte
		if change, err = json.Marshal(patch); err == nil {
			if have, err = jsonpatch.MergePatch(have, change); err == nil {
				out := &unstructured.Unstructured{}
				if err = utiljson.Unmarshal(have, &out.Object); err == nil {
					return out
				}
			}
		}
	}
	s.fatalf("apply the patch %v of the target to an object: %v", patch, err)
	return nil
}

// update writes an object as a function changes it, and again if somebody else wrote it meanwhile, as controllers do.
func (s *session) update(obj *unstructured.Unstructured, change func(*unstructured.Unstructured)) *unstructured.Unstructured {
	for {
		current := s.get(obj)
		change(current)
		if a := s.do("PUT", s.path(obj), body(current)); a.Code != 409 {
			return s.want(a, 200).object()
		}
	}
}

// patch is a merge patch that must succeed.
func (s *session) patch(obj *unstructured.Unstructured, patch any, options ...option) *unstructured.Unstructured {
	return s.want(s.do("PATCH", s.path(obj), append(options, mergePatch(patch))...), 200).object()
}

// eventually waits until a condition is true, which says what is missing otherwise.
func (s *session) eventually(what string, condition func() string) {
	for {
		missing := condition()
		if missing == "" {
			return
		}
		select {
		case <-s.ctx.Done():
			s.fatalf("%s: %s, until %s", what, missing, context.Cause(s.ctx))
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// aNamespace is one of the check's own.
func (s *session) aNamespace() string {
	a := s.want(s.do("POST", "/api/v1/namespaces", body(map[string]any{
		"apiVersion": "v1", "kind": "Namespace",
		"metadata": map[string]any{"generateName": "conformance-" + s.r.id + "-", "labels": map[string]any{ownLabel: s.label()}},
	})), 201)
	name := a.object().GetName()
	s.namespaces = append(s.namespaces, name)
	return name
}

// apart moves the check to a namespace of its own, where it may delete the collection: a server that ignores selectors must not delete
// the objects of other checks, let alone those of others in the cluster.
func (s *session) apart() {
	if s.r.facts.resource.Namespaced {
		s.namespace = s.aNamespace()
	}
}

// deleteCollection deletes it, in a check that needs its verb and confined.
func (s *session) deleteCollection(options ...option) *answer {
	if s.namespace == s.r.namespace && !s.r.target.AllowDisruptive {
		panic("conformance: a check deletes a collection that is not its own")
	}
	return s.do("DELETE", s.collection(), options...)
}

// content is what an object says beyond its metadata.
func content(obj *unstructured.Unstructured) map[string]any {
	out := runtime.DeepCopyJSON(obj.Object)
	delete(out, "metadata")
	delete(out, "status")
	delete(out, "apiVersion")
	delete(out, "kind")
	return out
}

// labelled returns a function that sets a label.
func labelled(name, value string) func(*unstructured.Unstructured) {
	return func(obj *unstructured.Unstructured) {
		labels := obj.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels[name] = value
		obj.SetLabels(labels)
	}
}

// metadata is a merge patch of it.
func metadata(fields map[string]any) map[string]any { return map[string]any{"metadata": fields} }
