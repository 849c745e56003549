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

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// All objects that a run creates have both labels. ownLabel identifies the check, and runLabel
// the run. Objects without the latter are not deleted.
const (
	ownLabel = "conformance.example.com/check"
	runLabel = "conformance.example.com/run"
)

// maxObjects is the maximum number of objects that a run creates.
const maxObjects = 5000

// session is the state of one running check.
type session struct {
	ctx    context.Context
	r      *runner
	check  Check
	number int
	next   atomic.Int32

	messages   []string
	exchanges  []Exchange
	objects    []string // paths of created objects
	namespaces []string
	// namespace is that of the run, or the check's own after apart. Empty for a cluster-scoped
	// resource.
	namespace string
	watches   []*watcher
	granted   []rbacv1.PolicyRule // to the user of the check
}

// ended is the panic value with which a check stops early.
type ended struct{ reason string }

func (s *session) errorf(format string, args ...any) {
	s.messages = append(s.messages, fmt.Sprintf(format, args...))
}

func (s *session) fatalf(format string, args ...any) {
	s.errorf(format, args...)
	panic(ended{})
}

// skipf skips a check that is not possible with this target.
func (s *session) skipf(format string, args ...any) {
	panic(ended{fmt.Sprintf(format, args...)})
}

// Accessors for properties of the resource, which shorten the checks.
func (s *session) kind() string       { return s.r.discovered.resource.Kind }
func (s *session) apiVersion() string { return s.r.discovered.gvr.GroupVersion().String() }
func (s *session) label() string      { return fmt.Sprintf("%s-%d", s.r.id, s.number) }
func (s *session) selector() string   { return ownLabel + "=" + s.label() }

// labels returns the labels of the objects that the check creates.
func (s *session) labels() map[string]any {
	return map[string]any{ownLabel: s.label(), runLabel: s.r.id}
}

// name returns a unique object name.
func (s *session) name() string {
	return fmt.Sprintf("conformance-%s-%d-%d", s.r.id, s.number, s.next.Add(1))
}

// groupPath returns the path of a version of the group.
func (s *session) groupPath(version string) string {
	if s.r.discovered.gvr.Group == "" {
		return "/api/" + version
	}
	return "/apis/" + s.r.discovered.gvr.Group + "/" + version
}

// collectionIn returns the path of the resource in a namespace and a version.
func (s *session) collectionIn(version, namespace string) string {
	path := s.groupPath(version)
	if namespace != "" && s.r.discovered.resource.Namespaced {
		path += "/namespaces/" + namespace
	}
	return path + "/" + s.r.discovered.gvr.Resource
}

// collection returns the path of the resource in the namespace of the check.
func (s *session) collection() string {
	return s.collectionIn(s.r.discovered.gvr.Version, s.namespace)
}

// path returns the path of an object.
func (s *session) path(obj *unstructured.Unstructured) string {
	return s.in(s.r.discovered.gvr.Version, obj)
}

// in returns the path of an object in a version. It stops the check if the object has no name,
// because the path would be that of the collection.
func (s *session) in(version string, obj *unstructured.Unstructured) string {
	if obj.GetName() == "" {
		s.fatalf("an object has no name: %v", obj.Object)
	}
	return s.collectionIn(version, obj.GetNamespace()) + "/" + obj.GetName()
}

// object returns a valid object that has not been created.
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

// create creates an object and registers it for deletion at the end of the check.
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

// created registers the object in the response to a create for deletion.
func (s *session) created(a *response) *unstructured.Unstructured {
	obj := a.object()
	s.objects = append(s.objects, s.path(obj))
	if s.r.made.Add(1) > maxObjects {
		s.fatalf("the run has created %d objects, which is the maximum", maxObjects)
	}
	return obj
}

// get returns the current state of an object.
func (s *session) get(obj *unstructured.Unstructured) *unstructured.Unstructured {
	return s.want(s.do("GET", s.path(obj)), 200).object()
}

// want stops the check unless a response has one of the codes.
func (s *session) want(a *response, codes ...int) *response {
	if slices.Contains(codes, a.Code) {
		return a
	}
	s.fatalf("%s: got %s, want %s", a.request, a, join(codes))
	return nil
}

// expectRefused stops the check unless a response is a Status with one of the codes.
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

// merged returns an object after a merge patch of the target.
func (s *session) merged(obj *unstructured.Unstructured, patch map[string]any) *unstructured.Unstructured {
	out, err := mergePatched(obj, patch)
	if err != nil {
		s.fatalf("apply the patch %v of the target to an object: %v", patch, err)
	}
	return out
}

// update updates an object with a function that changes it.
func (s *session) update(obj *unstructured.Unstructured,
	change func(*unstructured.Unstructured)) *unstructured.Unstructured {
	return s.unconflicted(func() *response {
		current := s.get(obj)
		change(current)
		return s.do("PUT", s.path(obj), body(current))
	}).object()
}

// unconflicted calls write until it succeeds without a conflict, because controllers write
// concurrently.
func (s *session) unconflicted(write func() *response) (a *response) {
	s.eventually("a write", func() string {
		if a = write(); a.Code == 409 {
			return "got " + a.String()
		}
		return ""
	})
	return s.want(a, 200)
}

// patch sends a merge patch that must succeed.
func (s *session) patch(obj *unstructured.Unstructured, patch any, options ...option) *unstructured.Unstructured {
	return s.want(s.do("PATCH", s.path(obj), append(options, mergePatch(patch))...), 200).object()
}

// maxPollInterval is the maximum interval between attempts. Most conditions are true within a
// second, and those of kube-controller-manager within half a minute.
const maxPollInterval = 2 * time.Second

// eventually waits until a condition returns "". The condition otherwise returns the missing
// part, for the error.
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

// aNamespace creates a namespace for the check and returns its name.
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

// prepare creates the objects in a namespace to which objects like the sample refer.
func (s *session) prepare(namespace string) {
	if s.r.target.Prepare == nil {
		return
	}
	if err := s.r.target.Prepare(s.ctx, s.r.target.Config, namespace); err != nil {
		s.fatalf("prepare the namespace %q: %v", namespace, err)
	}
}

// apart moves the check to its own namespace, in which it may delete the collection. A server
// that ignores selectors must not delete the objects of other checks or of other users of the
// cluster.
func (s *session) apart() {
	if s.r.discovered.resource.Namespaced {
		s.namespace = s.aNamespace()
	}
}

// deleteCollection deletes the collection. Only checks that require the verb and confined may
// call it.
func (s *session) deleteCollection(options ...option) *response {
	if s.namespace == s.r.namespace && !s.r.target.AllowDisruptive {
		panic("conformance: a check deletes a collection that is not its own")
	}
	return s.do("DELETE", s.collection(), options...)
}

// content returns the fields of an object without apiVersion, kind, metadata and status.
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

// metadata returns a merge patch of the metadata.
func metadata(fields map[string]any) map[string]any { return map[string]any{"metadata": fields} }
