// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Finalizers of a run have this prefix. Other finalizers belong to controllers, which may have
// work to do before an object is removed.
const ownFinalizers = "conformance.example.com/"

// cleanUp stops the watches of a check and deletes the objects that it created. It returns
// messages about objects that remain.
func (s *session) cleanUp(ctx context.Context) (left []string) {
	for _, w := range s.watches {
		w.cancel()
	}
	sweep := &session{ctx: ctx, r: s.r, check: s.check, number: s.number}
	for _, name := range s.namespaces {
		left = append(left, sweep.tryRemove("/api/v1/namespaces/"+name)...)
	}
	for _, path := range s.objects {
		left = append(left, sweep.tryRemove(path)...)
	}
	return left
}

// tryRemove deletes an object and returns the reason if that fails.
func (s *session) tryRemove(path string) (left []string) {
	s.messages = nil
	if messages, _ := s.runRecovered(func(s *session) { s.remove(path) }); len(messages) > 0 {
		left = []string{path + ": " + strings.Join(messages, "; ")}
	}
	return left
}

// remove deletes an object if it exists and belongs to the run. The response to a failed create
// may name any object.
func (s *session) remove(path string) {
	a := s.do("GET", path)
	if a.Code == 404 {
		return
	}
	obj := s.want(a, 200).object()
	switch {
	case obj.GetLabels()[runLabel] == s.r.id:
	case strings.Contains(path, "/namespaces/"+s.r.namespacePrefix()):
		return // it is deleted with the namespace
	default:
		s.fatalf("not deleted, because it does not have the label %s=%s", runLabel, s.r.id)
	}
	options := map[string]any{"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background",
		"preconditions": map[string]any{"uid": obj.GetUID()}}
	if a = s.want(s.do("DELETE", path, body(options)), 200, 202, 404, 409); a.Code == 409 &&
		obj.GetDeletionTimestamp() == nil {
		s.fatalf("%s: got %s", a.request, a)
	}
	s.release(path)
}

// release removes the finalizers of the run from an object.
func (s *session) release(path string) {
	s.unconflicted(func() *response {
		a := s.do("GET", path)
		if a.Code == 404 {
			a.Code = 200 // a missing object has no finalizers
			return a
		}
		obj := s.want(a, 200).object()
		kept := slices.DeleteFunc(slices.Clone(obj.GetFinalizers()),
			func(f string) bool { return strings.HasPrefix(f, ownFinalizers) })
		if len(kept) == len(obj.GetFinalizers()) {
			return a
		}
		return s.do("PATCH", path, mergePatch(metadata(map[string]any{"resourceVersion": obj.GetResourceVersion(),
			"finalizers": kept})))
	})
}

// sweep deletes objects with the label of the run that no check recorded, such as objects that a
// server created for a dry run. Objects in the namespaces of the run are deleted with their
// namespace.
func (r *runner) sweep(ctx context.Context) (left []string) {
	s := &session{ctx: ctx, r: r}
	for pause := 250 * time.Millisecond; ; pause *= 2 {
		left = nil
		var found []unstructured.Unstructured
		s.messages = nil
		messages, _ := s.runRecovered(func(s *session) {
			if a := s.do("GET", s.collectionIn(r.discovered.gvr.Version, ""),
				query("labelSelector", runLabel+"="+r.id)); a.Code != 403 {
				found = s.want(a, 200).items()
			}
		})
		if len(messages) > 0 {
			return []string{fmt.Sprintf("%s: cannot list remaining objects: %s", r.discovered.gvr.GroupResource(),
				strings.Join(messages, "; "))}
		}
		for _, obj := range found {
			if obj.GetLabels()[runLabel] != r.id || strings.HasPrefix(obj.GetNamespace(), r.namespacePrefix()) ||
				obj.GetName() == "" {
				continue
			}
			path := s.path(&obj)
			if left = append(left, s.tryRemove(path)...); len(left) == 0 ||
				!strings.HasPrefix(left[len(left)-1], path) {
				left = append(left, path+": it is being deleted")
			}
		}
		if len(left) == 0 || pause > 2*time.Second {
			return left
		}
		select {
		case <-ctx.Done():
			return left
		case <-time.After(pause):
		}
	}
}

// namespacePrefix returns the prefix of the names of the run's namespaces.
func (r *runner) namespacePrefix() string { return "conformance-" + r.id + "-" }
