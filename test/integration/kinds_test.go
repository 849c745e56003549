// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

// TestKinds does with every kind what clients do with any: each verb once, and a watch that sees it all.
func TestKinds(t *testing.T) {
	for _, k := range kindCases {
		t.Run(k.resource.Resource, func(t *testing.T) {
			client := k.client(t, adminConfig(t, shared), newNamespace(t, shared))
			name := uniqueName(t)
			labels := map[string]string{"test": name}
			selected := metav1.ListOptions{LabelSelector: "test=" + name}
			list, err := client.List(t.Context(), selected)
			if err != nil {
				t.Fatal(err)
			}
			selected.ResourceVersion = list.GetResourceVersion()
			events, err := client.Watch(t.Context(), selected)
			if err != nil {
				t.Fatal(err)
			}
			defer events.Stop()

			obj := k.object(t, name)
			obj.SetLabels(labels)
			created, err := client.Create(t.Context(), obj, metav1.CreateOptions{})
			if err != nil {
				t.Fatalf("create: %v", err)
			}
			expect(t, events, watch.Added, created)
			if created.GetGeneration() != 1 || created.GetUID() == "" {
				t.Errorf("created: generation %d and UID %q, want 1 and some", created.GetGeneration(), created.GetUID())
			}
			if _, err := client.Create(t.Context(), obj, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
				t.Errorf("create again: %v, want AlreadyExists", err)
			}
			got, err := client.Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				t.Fatalf("get: %v", err)
			}
			if diff := cmp.Diff(created, got); diff != "" {
				t.Errorf("get is not what was created (-created +got):\n%s", diff)
			}

			changes(t, client, k, events, got)

			list, err = client.List(t.Context(), metav1.ListOptions{LabelSelector: "test=" + name})
			if err != nil || len(list.Items) != 1 {
				t.Errorf("list: %d objects, error %v; want 1", len(list.Items), err)
			}
			if err := client.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
				t.Fatalf("delete: %v", err)
			}
			expect(t, events, watch.Deleted, nil)
			if _, err := client.Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				t.Errorf("get after delete: %v, want NotFound", err)
			}

			if _, err := client.Create(t.Context(), obj, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			if err := client.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "test=" + name}); err != nil {
				t.Fatalf("deletecollection: %v", err)
			}
			if _, err := client.Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				t.Errorf("get after deletecollection: %v, want NotFound", err)
			}
		})
	}
}

// changes updates, patches and applies, and checks what came of it.
func changes(t *testing.T, client dynamic.ResourceInterface, k kindCase, events watch.Interface, got *unstructured.Unstructured) {
	t.Helper()
	stale := got.DeepCopy()
	got.SetAnnotations(map[string]string{"test": "updated"})
	updated, err := client.Update(t.Context(), got, metav1.UpdateOptions{})
	if err != nil {
		t.Fatalf("update: %v", err)
	}
	expect(t, events, watch.Modified, updated)
	if updated.GetGeneration() != 1 {
		t.Errorf("generation %d after a change of metadata, want 1", updated.GetGeneration())
	}
	stale.SetAnnotations(map[string]string{"test": "stale"})
	if _, err := client.Update(t.Context(), stale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("update of an old state: %v, want Conflict", err)
	}
	patched, err := client.Patch(t.Context(), got.GetName(), types.MergePatchType, []byte(k.change), metav1.PatchOptions{})
	if err != nil {
		t.Fatalf("patch: %v", err)
	}
	expect(t, events, watch.Modified, patched)
	value, _, _ := unstructured.NestedFieldNoCopy(patched.Object, k.field...)
	if diff := cmp.Diff(k.value, value); diff != "" || patched.GetGeneration() != 2 {
		t.Errorf("patched: generation %d, want 2; %v (-want +got):\n%s", patched.GetGeneration(), k.field, diff)
	}
	applied, err := client.Apply(t.Context(), got.GetName(), k.object(t, got.GetName()), metav1.ApplyOptions{FieldManager: "test", Force: true})
	if err != nil {
		t.Fatalf("apply: %v", err)
	}
	expect(t, events, watch.Modified, applied)
}

// expect reads the next event, which must be about the object as it is given (nil: any state).
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
	case <-time.After(patience):
		t.Fatalf("watch: nothing within %s, want %s", patience, want)
	}
}

func mustList(t *testing.T, client dynamic.ResourceInterface, options metav1.ListOptions) *unstructured.UnstructuredList {
	t.Helper()
	list, err := client.List(t.Context(), options)
	if err != nil {
		t.Fatalf("list with %+v: %v", options, err)
	}
	return list
}

// compareRV orders resource versions of one resource, as clients may since KEP-5504.
func compareRV(t *testing.T, a, b string) int {
	t.Helper()
	n, err := resourceversion.CompareResourceVersion(a, b)
	if err != nil {
		t.Fatalf("compare resource versions %q and %q: %v", a, b, err)
	}
	return n
}
