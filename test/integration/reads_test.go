// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"testing"
	"time"

	"example.com/extension-apiserver/pkg/envtest"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

// readKind is a kind that the tests of reads use.
type readKind struct {
	kindCase
	kind string
	spec map[string]any
}

// readKinds lists widgets and, for comparison, leases, which kube-apiserver serves itself. An
// expectation that holds for both describes the behaviour of any API server, not only of this
// one.
var readKinds = []readKind{
	{widgetCase, "Widget", map[string]any{"model": "pendulum"}},
	{kindCase{
		resource:   schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"},
		namespaced: true,
	}, "Lease", map[string]any{"holderIdentity": "somebody"}},
}

// path returns the path of the collection in a namespace, or in all namespaces if namespace is
// empty.
func (k readKind) path(namespace string) string {
	path := "/apis/" + k.resource.GroupVersion().String()
	if namespace != "" {
		path += "/namespaces/" + namespace
	}
	return path + "/" + k.resource.Resource
}

func (k readKind) create(t *testing.T, client dynamic.ResourceInterface, name string,
	labels map[string]string) *unstructured.Unstructured {
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

// patchLabel sets a label, which every kind allows. A nil value removes it.
func patchLabel(t *testing.T, client dynamic.ResourceInterface, name, label string,
	value any) *unstructured.Unstructured {
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

// objectNames returns the names of the objects, in order.
func objectNames(objects []unstructured.Unstructured) []string {
	out := []string{}
	for _, obj := range objects {
		out = append(out, obj.GetName())
	}
	return out
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

// nextEvent returns the next event.
func nextEvent(t *testing.T, events watch.Interface) watch.Event {
	t.Helper()
	select {
	case event, ok := <-events.ResultChan():
		if !ok {
			t.Fatal("watch: got its end, want an event")
		}
		return event
	case <-time.After(envtest.WaitTimeout):
		t.Fatalf("watch: got nothing within %s, want an event", envtest.WaitTimeout)
		return watch.Event{}
	}
}

// expect checks that the next event has the type and the object. A nil object matches any.
func expect(t *testing.T, events watch.Interface, want watch.EventType, obj *unstructured.Unstructured) {
	t.Helper()
	select {
	case event := <-events.ResultChan():
		if event.Type != want {
			t.Fatalf("watch: %s %v, want %s", event.Type, event.Object, want)
		}
		if obj == nil {
			return
		}
		if diff := cmp.Diff(obj, event.Object); diff != "" {
			t.Errorf("watch: the object of %s is not what the write returned (-write +watch):\n%s", want, diff)
		}
	case <-time.After(envtest.WaitTimeout):
		t.Fatalf("watch: nothing within %s, want %s", envtest.WaitTimeout, want)
	}
}

func mustList(t *testing.T, client dynamic.ResourceInterface,
	options metav1.ListOptions) *unstructured.UnstructuredList {
	t.Helper()
	list, err := client.List(t.Context(), options)
	if err != nil {
		t.Fatalf("list with %+v: %v", options, err)
	}
	return list
}

// compareRV compares resource versions of one resource, which KEP-5504 allows clients to do.
func compareRV(t *testing.T, a, b string) int {
	t.Helper()
	n, err := resourceversion.CompareResourceVersion(a, b)
	if err != nil {
		t.Fatalf("compare resource versions %q and %q: %v", a, b, err)
	}
	return n
}
