// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"example.com/extension-apiserver/pkg/envtest"
)

// readKind is a kind that the tests of reads use.
type readKind struct {
	kindCase
	kind string
	spec map[string]any
}

// readKinds are engines and, for comparison, leases, which kube-apiserver serves itself: what a test expects of both is
// what a client gets anywhere, and not what our server happens to do.
var readKinds = []readKind{
	{engineCase, "Engine", map[string]any{"model": "pendulum"}},
	{kindCase{
		resource:   schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"},
		namespaced: true,
	}, "Lease", map[string]any{"holderIdentity": "somebody"}},
}

// eachReadKind runs the test with each kind, in a namespace of its own.
func eachReadKind(t *testing.T, e *envtest.Environment, test func(t *testing.T, k readKind, namespace string)) {
	t.Helper()
	for _, k := range readKinds {
		t.Run(k.resource.Resource, func(t *testing.T) { test(t, k, newNamespace(t, e)) })
	}
}

// path is that of the collection in a namespace, or in all of them.
func (k readKind) path(namespace string) string {
	path := "/apis/" + k.resource.GroupVersion().String()
	if namespace != "" {
		path += "/namespaces/" + namespace
	}
	return path + "/" + k.resource.Resource
}

func (k readKind) create(t *testing.T, client dynamic.ResourceInterface, name string, labels map[string]string) *unstructured.Unstructured {
	t.Helper()
	obj := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": k.resource.GroupVersion().String(), "kind": k.kind,
		"metadata": map[string]any{"name": name},
		"spec":     k.spec,
	}}
	obj.SetLabels(labels)
	created, err := client.Create(t.Context(), obj, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create %s: %v", name, err)
	}
	return created
}

// patchLabel changes an object in the way that every kind allows. A value of nil removes the label.
func patchLabel(t *testing.T, client dynamic.ResourceInterface, name, label string, value any) *unstructured.Unstructured {
	t.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]any{label: value}}})
	if err != nil {
		t.Fatal(err)
	}
	changed, err := client.Patch(t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		t.Fatalf("set label %s of %s: %v", label, name, err)
	}
	return changed
}

func mustDelete(t *testing.T, client dynamic.ResourceInterface, name string) {
	t.Helper()
	if err := client.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatalf("delete %s: %v", name, err)
	}
}

// objectNames of objects, in their order.
func objectNames(objects []unstructured.Unstructured) []string {
	out := []string{}
	for _, obj := range objects {
		out = append(out, obj.GetName())
	}
	return out
}

func sortByName(objects []unstructured.Unstructured) {
	slices.SortFunc(objects, func(a, b unstructured.Unstructured) int { return strings.Compare(a.GetName(), b.GetName()) })
}

// mustWatch starts a watch that ends with the test.
func mustWatch(t *testing.T, client dynamic.ResourceInterface, options metav1.ListOptions) watch.Interface {
	t.Helper()
	events, err := client.Watch(t.Context(), options)
	if err != nil {
		t.Fatalf("watch with %+v: %v", options, err)
	}
	t.Cleanup(events.Stop)
	return events
}

// nextEvent reads the next event.
func nextEvent(t *testing.T, events watch.Interface) watch.Event {
	t.Helper()
	select {
	case event, ok := <-events.ResultChan():
		if !ok {
			t.Fatal("watch: got its end, want an event")
		}
		return event
	case <-time.After(patience):
		t.Fatalf("watch: got nothing within %s, want an event", patience)
		return watch.Event{}
	}
}

// nextObject reads the next event, which must be of the type and about an object.
func nextObject(t *testing.T, events watch.Interface, want watch.EventType) *unstructured.Unstructured {
	t.Helper()
	event := nextEvent(t, events)
	obj, ok := event.Object.(*unstructured.Unstructured)
	if !ok || event.Type != want {
		t.Fatalf("watch: got %s %v, want %s", event.Type, event.Object, want)
	}
	return obj
}
