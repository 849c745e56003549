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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// Both labels are on all that a run makes: ownLabel says of which check it is, runLabel of which run. What lacks the
// latter is not deleted.
const (
	ownLabel = "conformance.example.com/check"
	runLabel = "conformance.example.com/run"
)

// maxObjects is how many objects a run makes at most.
const maxObjects = 5000

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
func (s *session) kind() string       { return s.r.discovered.resource.Kind }
func (s *session) apiVersion() string { return s.r.discovered.gvr.GroupVersion().String() }
func (s *session) label() string      { return fmt.Sprintf("%s-%d", s.r.id, s.number) }
func (s *session) selector() string   { return ownLabel + "=" + s.label() }

// labels are those of what the check makes.
func (s *session) labels() map[string]any {
	return map[string]any{ownLabel: s.label(), runLabel: s.r.id}
}

// name is one that no other object has.
func (s *session) name() string {
	return fmt.Sprintf("conformance-%s-%d-%d", s.r.id, s.number, s.next.Add(1))
}

// groupPath is the path of a version of the group.
func (s *session) groupPath(version string) string {
	if s.r.discovered.gvr.Group == "" {
		return "/api/" + version
	}
	return "/apis/" + s.r.discovered.gvr.Group + "/" + version
}

// collectionIn is the path of the resource in a namespace and a version.
func (s *session) collectionIn(version, namespace string) string {
	path := s.groupPath(version)
	if namespace != "" && s.r.discovered.resource.Namespaced {
		path += "/namespaces/" + namespace
	}
	return path + "/" + s.r.discovered.gvr.Resource
}

// collection is the path of the resource, in the namespace of the run.
func (s *session) collection() string {
	return s.collectionIn(s.r.discovered.gvr.Version, s.namespace)
}

// path is that of an object.
func (s *session) path(obj *unstructured.Unstructured) string {
	return s.in(s.r.discovered.gvr.Version, obj)
}

// in is the path of an object in a version. Without a name it would be that of the collection.
func (s *session) in(version string, obj *unstructured.Unstructured) string {
	if obj.GetName() == "" {
		s.fatalf("an object has no name: %v", obj.Object)
	}
	return s.collectionIn(version, obj.GetNamespace()) + "/" + obj.GetName()
}

// object is a valid one that was not sent yet.
func (s *session) object() *unstructured.Unstructured {
	obj := s.r.target.Sample.DeepCopy()
	for _, field := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields",
		"selfLink", "generateName", "ownerReferences", "finalizers"} {
		unstructured.RemoveNestedField(obj.Object, "metadata", field)
	}
	unstructured.RemoveNestedField(obj.Object, "status")
	obj.SetName(s.name())
	obj.SetNamespace(s.namespace)
	labels := maps.Clone(obj.GetLabels())
	if labels == nil {
		labels = map[string]string{}
	}
	labels[ownLabel], labels[runLabel] = s.label(), s.r.id
	obj.SetLabels(labels)
	return obj
}

// create makes an object, and sees to it that it goes.
func (s *session) create(change ...func(*unstructured.Unstructured)) *unstructured.Unstructured {
	obj := s.object()
	for _, c := range change {
		c(obj)
	}
	path := s.collectionIn(s.r.discovered.gvr.Version, obj.GetNamespace())
	a := s.do("POST", path, body(obj))
	if a.Code != 201 {
		s.fatalf("create an object: got %s, want 201", a)
	}
	return s.created(a)
}

// created notes what an answer says was made.
func (s *session) created(a *response) *unstructured.Unstructured {
	obj := a.object()
	s.objects = append(s.objects, s.path(obj))
	if s.r.made.Add(1) > maxObjects {
		s.fatalf("the run has created %d objects, which is the maximum", maxObjects)
	}
	return obj
}

// get reads an object again.
func (s *session) get(obj *unstructured.Unstructured) *unstructured.Unstructured {
	return s.want(s.do("GET", s.path(obj)), 200).object()
}

// want ends the check unless an answer has one of the codes.
func (s *session) want(a *response, codes ...int) *response {
	if slices.Contains(codes, a.Code) {
		return a
	}
	s.fatalf("%s: got %s, want %s", a.request, a, join(codes))
	return nil
}

// expectRefused ends the check unless an answer is a Status with one of the codes.
func (s *session) expectRefused(a *response, codes ...int) *metav1.Status {
	s.want(a, codes...)
	status := &metav1.Status{}
	if err := json.Unmarshal(a.Body, status); err != nil || status.Kind != "Status" ||
		status.Status != metav1.StatusFailure || int(status.Code) != a.Code {
		s.fatalf("%s: the body is %.300q, want a Status with Failure and code %d", a.request, a.Body, a.Code)
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

// merged is an object after a merge patch of the target.
func (s *session) merged(obj *unstructured.Unstructured, patch map[string]any) *unstructured.Unstructured {
	out, err := mergePatched(obj, patch)
	if err != nil {
		s.fatalf("apply the patch %v of the target to an object: %v", patch, err)
	}
	return out
}

// update writes an object as a function changes it.
func (s *session) update(obj *unstructured.Unstructured,
	change func(*unstructured.Unstructured)) *unstructured.Unstructured {
	return s.unconflicted(func() *response {
		current := s.get(obj)
		change(current)
		return s.do("PUT", s.path(obj), body(current))
	}).object()
}

// unconflicted reads and writes, and again if somebody else wrote meanwhile, as controllers do.
func (s *session) unconflicted(write func() *response) (a *response) {
	s.eventually("a write", func() string {
		if a = write(); a.Code == 409 {
			return "got " + a.String()
		}
		return ""
	})
	return s.want(a, 200)
}

// patch is a merge patch that must succeed.
func (s *session) patch(obj *unstructured.Unstructured, patch any, options ...option) *unstructured.Unstructured {
	return s.want(s.do("PATCH", s.path(obj), append(options, mergePatch(patch))...), 200).object()
}

// maxPollInterval is how long a check waits before it looks again, at most: most conditions are true within a second,
// and those of kube-controller-manager within half a minute.
const maxPollInterval = 2 * time.Second

// eventually waits until a condition is true, which says what is missing otherwise.
func (s *session) eventually(what string, condition func() string) {
	for pause := 100 * time.Millisecond; ; pause = min(pause*3/2, maxPollInterval) {
		missing := condition()
		if missing == "" {
			return
		}
		select {
		case <-s.ctx.Done():
			s.fatalf("%s: %s, until %s", what, missing, context.Cause(s.ctx))
		case <-time.After(pause):
		}
	}
}

// aNamespace is one of the check's own.
func (s *session) aNamespace() string {
	a := s.do("POST", "/api/v1/namespaces", body(map[string]any{
		"apiVersion": "v1", "kind": "Namespace",
		"metadata": map[string]any{"generateName": s.r.namespacePrefix(), "labels": s.labels()},
	}))
	if a.Code == 403 {
		s.skipf("cannot create a namespace: %s", a)
	}
	name := s.want(a, 201).object().GetName()
	s.namespaces = append(s.namespaces, name)
	s.prepare(name)
	return name
}

// prepare creates what objects in a namespace refer to.
func (s *session) prepare(namespace string) {
	if s.r.target.Prepare == nil {
		return
	}
	if err := s.r.target.Prepare(s.ctx, s.r.target.Config, namespace); err != nil {
		s.fatalf("prepare the namespace %q: %v", namespace, err)
	}
}

// apart moves the check to a namespace of its own, where it may delete the collection: a server that ignores selectors
// must not delete the objects of other checks, let alone those of others in the cluster.
func (s *session) apart() {
	if s.r.discovered.resource.Namespaced {
		s.namespace = s.aNamespace()
	}
}

// deleteCollection deletes it, in a check that needs its verb and confined.
func (s *session) deleteCollection(options ...option) *response {
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
