// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"example.com/extension-apiserver/pkg/envtest"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
)

func init() { log.SetLogger(klog.Background()) }

// TestWidgetControllerRuntimeClient checks all kinds of writes of the controller-runtime client,
// which most controllers use.
func TestWidgetControllerRuntimeClient(t *testing.T) {
	namespace := shared.NewNamespace(t)
	c := runtimeClient(t)
	w := &v1.Widget{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "w"}, Spec: v1.WidgetSpec{Model: "m"}}
	again := w.DeepCopy()
	if err := c.Create(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	if w.Spec.Grade != v1.WidgetGradeStandard || w.UID == "" {
		t.Errorf("created: %+v, want defaults and a UID filled in", w)
	}
	if err := c.Create(t.Context(), again); !apierrors.IsAlreadyExists(err) {
		t.Errorf("create again: %v, want AlreadyExists", err)
	}
	stale := w.DeepCopy()

	before := w.DeepCopy()
	w.Spec.Replicas = new(int32(2))
	if err := c.Patch(t.Context(), w, client.MergeFrom(before)); err != nil || *w.Spec.Replicas != 2 ||
		w.Generation != 2 {
		t.Errorf("merge patch: %+v, error %v; want 2 replicas in generation 2", w, err)
	}
	before = w.DeepCopy()
	w.Spec.Parts = []v1.WidgetPart{{Name: "p"}}
	if err := c.Patch(t.Context(), w, client.StrategicMergeFrom(before,
		client.MergeFromWithOptimisticLock{})); err != nil || len(w.Spec.Parts) != 1 {
		t.Errorf("strategic merge patch: %+v, error %v; want one part", w, err)
	}
	applied := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1.SchemeGroupVersion.String(), "kind": "Widget",
		"metadata": map[string]any{"namespace": namespace, "name": "w"},
		"spec":     map[string]any{"parts": []any{map[string]any{"name": "q", "quantity": int64(2)}}},
	}}
	if err := c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(applied),
		client.FieldOwner("test")); err != nil {
		t.Errorf("apply: %v", err)
	}
	stale.Spec.Replicas = new(int32(9))
	if err := c.Update(t.Context(), stale); !apierrors.IsConflict(err) {
		t.Errorf("update of an old state: %v, want Conflict", err)
	}

	if err := c.Get(t.Context(), client.ObjectKeyFromObject(w), w); err != nil {
		t.Fatal(err)
	}
	want := v1.WidgetSpec{
		Model: "m", Grade: v1.WidgetGradeStandard, Replicas: new(int32(2)),
		Parts: []v1.WidgetPart{{Name: "p", Quantity: new(int32(1))}, {Name: "q", Quantity: new(int32(2))}},
	}
	if diff := cmp.Diff(want, w.Spec); diff != "" {
		t.Errorf("after the patches and the apply (-want +got):\n%s", diff)
	}
	writeStatus(t, c, w)
	if err := c.DeleteAllOf(t.Context(), &v1.Widget{}, client.InNamespace(namespace)); err != nil {
		t.Errorf("delete all: %v", err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(w), w); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("get after the deletion: %v, want NotFound", err)
	}
}

// writeStatus updates, patches and applies the status, and checks that this changes nothing else.
func writeStatus(t *testing.T, c client.Client, w *v1.Widget) {
	t.Helper()
	spec := w.Spec.DeepCopy()
	w.Spec.Replicas = new(int32(7))
	w.Status.Replicas = 2
	if err := c.Status().Update(t.Context(), w); err != nil {
		t.Errorf("update of the status: %v", err)
	}
	before := w.DeepCopy()
	w.Spec.Replicas = new(int32(8))
	w.Status.ReadyReplicas = 1
	if err := c.Status().Patch(t.Context(), w, client.MergeFrom(before)); err != nil {
		t.Errorf("patch of the status: %v", err)
	}
	applied := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1.SchemeGroupVersion.String(), "kind": "Widget",
		"metadata": map[string]any{"namespace": w.Namespace, "name": w.Name},
		"status":   map[string]any{"selector": "a=b"},
	}}
	if err := c.Status().Apply(t.Context(), client.ApplyConfigurationFromUnstructured(applied),
		client.FieldOwner("test")); err != nil {
		t.Errorf("apply of the status: %v", err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(w), w); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(v1.WidgetStatus{Replicas: 2, ReadyReplicas: 1, Selector: "a=b"}, w.Status); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(spec, &w.Spec); diff != "" {
		t.Errorf("spec after writes of the status (-want +got):\n%s", diff)
	}
}

// TestWidgetControllerRuntimeCache checks that the cache of a manager follows the API, with Go
// types, unstructured objects and metadata only, in one namespace and by label, and serves reads
// from an index.
func TestWidgetControllerRuntimeCache(t *testing.T) {
	namespace := shared.NewNamespace(t)
	c := runtimeClient(t)
	create := func(name, model, label string) *v1.Widget {
		t.Helper()
		meta := metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"test": label}}
		w := &v1.Widget{ObjectMeta: meta, Spec: v1.WidgetSpec{Model: model}}
		if err := c.Create(t.Context(), w); err != nil {
			t.Fatal(err)
		}
		return w
	}
	create("a", "one", "x")
	create("other", "one", "y")
	reader := startCache(t, namespace)
	b := create("b", "two", "x")
	b.Spec.Replicas = new(int32(4))
	if err := c.Update(t.Context(), b); err != nil {
		t.Fatal(err)
	}

	partial := &metav1.PartialObjectMetadata{}
	partial.SetGroupVersionKind(v1.SchemeGroupVersion.WithKind("Widget"))
	generic := &unstructured.Unstructured{}
	generic.SetGroupVersionKind(v1.SchemeGroupVersion.WithKind("Widget"))
	for _, obj := range []client.Object{&v1.Widget{}, partial, generic} {
		shared.Eventually(t, fmt.Sprintf("b as %T in the cache", obj), envtest.WaitTimeout,
			func(ctx context.Context) error {
				if err := reader.Get(ctx, client.ObjectKeyFromObject(b), obj); err != nil {
					return err
				}
				if obj.GetResourceVersion() != b.ResourceVersion || obj.GetUID() != b.UID {
					return fmt.Errorf("at resourceVersion %s, want %s", obj.GetResourceVersion(), b.ResourceVersion)
				}
				return nil
			})
	}
	for want, options := range map[string][]client.ListOption{
		"a b": {client.InNamespace(namespace)},
		"b":   {client.MatchingFields{"spec.model": "two"}},
		"":    {client.MatchingLabels{"test": "y"}},
	} {
		var list v1.WidgetList
		if err := reader.List(t.Context(), &list, options...); err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, w := range list.Items {
			names = append(names, w.Name)
		}
		slices.Sort(names)
		if got := strings.Join(names, " "); got != want {
			t.Errorf("list with %v: %q, want %q", options, got, want)
		}
	}
	if err := c.Delete(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	shared.Eventually(t, "the deletion in the cache", envtest.WaitTimeout, func(ctx context.Context) error {
		if err := reader.Get(ctx, client.ObjectKeyFromObject(b), &v1.Widget{}); !apierrors.IsNotFound(err) {
			return errors.Join(errors.New("the response is not NotFound"), err)
		}
		return nil
	})
}

// startCache runs a cache of the labelled widgets of a namespace, indexed by model, until the
// test ends.
func startCache(t *testing.T, namespace string) client.Reader {
	t.Helper()
	widgets, err := cache.New(shared.Admin(t), cache.Options{
		Scheme:               runtimeClient(t).Scheme(),
		DefaultNamespaces:    map[string]cache.Config{namespace: {}},
		DefaultLabelSelector: labels.SelectorFromSet(labels.Set{"test": "x"}),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := widgets.IndexField(t.Context(), &v1.Widget{}, "spec.model", func(obj client.Object) []string {
		return []string{obj.(*v1.Widget).Spec.Model}
	}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- widgets.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the cache ended: %v", err)
		}
	})
	synced, stop := context.WithTimeout(ctx, envtest.WaitTimeout)
	defer stop()
	if !widgets.WaitForCacheSync(synced) {
		t.Fatalf("the cache is not synced within %s", envtest.WaitTimeout)
	}
	return widgets
}

func runtimeClient(t *testing.T) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(shared.Admin(t), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}
