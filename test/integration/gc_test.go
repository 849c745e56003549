// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// hold is a finalizer that nobody serves: it keeps an object until the test takes it away.
const hold = "example.com/hold"

// collected is a kind whose objects own others or are owned.
type collected struct {
	client dynamic.ResourceInterface
	object func(name string) *unstructured.Unstructured
}

// TestEngineGarbageCollection: the garbage collector of the cluster follows owner references from and to our kinds, and
// obeys the propagation policy of a delete, as with built-in kinds.
func TestEngineGarbageCollection(t *testing.T) {
	t.Parallel()
	config, namespace := adminConfig(t, shared), newNamespace(t, shared)
	dynamicClient, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	ours := func(k kindCase) collected {
		return collected{k.client(t, config, namespace), func(name string) *unstructured.Unstructured { return k.object(t, name) }}
	}
	engine, item := ours(engineCase), ours(itemCase)
	configMap := collected{
		dynamicClient.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace(namespace),
		func(name string) *unstructured.Unstructured {
			return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name}}}
		},
	}
	// kube-controller-manager looks for new kinds every 30 s. From then on it collects what names an owner that never was.
	engine.seen(t)
	configMap.seen(t)
	for _, tc := range []struct {
		name             string
		owner, dependent collected
	}{
		{"engine of a ConfigMap", configMap, engine},
		{"ConfigMap of an engine", engine, configMap},
		{"engine of an item", item, engine},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Run("background", func(t *testing.T) { collectInBackground(t, tc.owner, tc.dependent) })
			t.Run("foreground", func(t *testing.T) { collectInForeground(t, tc.owner, tc.dependent) })
			t.Run("orphan", func(t *testing.T) { orphanDependents(t, tc.owner, tc.dependent) })
		})
	}
}

// collectInBackground: the owner goes at once, the dependent soon after; one that has another owner stays, without the
// reference.
func collectInBackground(t *testing.T, owner, dependent collected) {
	first, second := owner.create(t), owner.create(t)
	one := dependent.create(t, reference(first))
	both := dependent.create(t, reference(first), reference(second))
	dependent.seen(t)
	owner.delete(t, first, metav1.DeletePropagationBackground)
	owner.isGone(t, first)
	dependent.goes(t, one)
	shared.Eventually(t, "the reference to the owner that is gone to be removed", patience, func(ctx context.Context) error {
		return dependent.references(ctx, both, reference(second))
	})
	owner.delete(t, second, metav1.DeletePropagationBackground)
	dependent.goes(t, both)
}

// collectInForeground: the owner waits, marked as being deleted, until the dependent that blocks it is gone.
func collectInForeground(t *testing.T, owner, dependent collected) {
	o := owner.create(t)
	blocking := reference(o)
	blocking.BlockOwnerDeletion = new(true)
	blocker := dependent.create(t, blocking)
	dependent.patch(t, blocker, `{"metadata":{"finalizers":["`+hold+`"]}}`)
	dependent.seen(t)
	owner.delete(t, o, metav1.DeletePropagationForeground)
	shared.Eventually(t, "the dependent to be marked", patience, func(ctx context.Context) error {
		return dependent.deleting(ctx, blocker, hold)
	})
	if err := owner.deleting(t.Context(), o, metav1.FinalizerDeleteDependents); err != nil {
		t.Errorf("owner while a dependent blocks it: %v", err)
	}
	dependent.patch(t, blocker, `{"metadata":{"finalizers":null}}`)
	owner.goes(t, o)
	dependent.isGone(t, blocker)
}

// orphanDependents: the owner goes, the dependent stays and names it no more.
func orphanDependents(t *testing.T, owner, dependent collected) {
	o := owner.create(t)
	orphan := dependent.create(t, reference(o))
	dependent.seen(t)
	owner.delete(t, o, metav1.DeletePropagationOrphan)
	owner.goes(t, o)
	if err := dependent.references(t.Context(), orphan); err != nil {
		t.Errorf("orphan: %v", err)
	}
}

// create creates an object with these owners, in one namespace or in none.
func (k collected) create(t *testing.T, owners ...metav1.OwnerReference) *unstructured.Unstructured {
	t.Helper()
	obj := k.object(uniqueName(t))
	obj.SetOwnerReferences(owners)
	created, err := k.client.Create(t.Context(), obj, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return created
}

// seen waits until the garbage collector has seen all objects of the kind that are there: it sees them in order, so it does
// when it collects one that was made after them.
func (k collected) seen(t *testing.T) {
	t.Helper()
	k.goes(t, k.create(t, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "never-was", UID: "never-was"}))
}

func (k collected) patch(t *testing.T, obj *unstructured.Unstructured, patch string) {
	t.Helper()
	if _, err := k.client.Patch(t.Context(), obj.GetName(), types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (k collected) delete(t *testing.T, obj *unstructured.Unstructured, policy metav1.DeletionPropagation) {
	t.Helper()
	if err := k.client.Delete(t.Context(), obj.GetName(), metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
		t.Fatal(err)
	}
}

// goes waits until the object is gone, isGone looks once.
func (k collected) goes(t *testing.T, obj *unstructured.Unstructured) {
	t.Helper()
	shared.Eventually(t, obj.GetKind()+" "+obj.GetName()+" to be gone", patience, func(ctx context.Context) error {
		got, err := k.client.Get(ctx, obj.GetName(), metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(fmt.Errorf("still there: %v", got), err)
	})
}

func (k collected) isGone(t *testing.T, obj *unstructured.Unstructured) {
	t.Helper()
	if got, err := k.client.Get(t.Context(), obj.GetName(), metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("%s %s: got %v and error %v, want NotFound", obj.GetKind(), obj.GetName(), got, err)
	}
}

// deleting returns an error unless the object is there, marked as being deleted, and has exactly this finalizer.
func (k collected) deleting(ctx context.Context, obj *unstructured.Unstructured, finalizer string) error {
	got, err := k.client.Get(ctx, obj.GetName(), metav1.GetOptions{})
	if err != nil {
		return err
	}
	if got.GetDeletionTimestamp() == nil {
		return errors.New("it has no deletionTimestamp")
	}
	if diff := cmp.Diff([]string{finalizer}, got.GetFinalizers()); diff != "" {
		return fmt.Errorf("finalizers (-want +got):\n%s", diff)
	}
	return nil
}

// references returns an error unless the object is there, is not being deleted, and has exactly these owners.
func (k collected) references(ctx context.Context, obj *unstructured.Unstructured, want ...metav1.OwnerReference) error {
	got, err := k.client.Get(ctx, obj.GetName(), metav1.GetOptions{})
	if err != nil {
		return err
	}
	if diff := cmp.Diff(want, got.GetOwnerReferences()); diff != "" || got.GetDeletionTimestamp() != nil {
		return fmt.Errorf("deletionTimestamp %v, want none; owners (-want +got):\n%s", got.GetDeletionTimestamp(), diff)
	}
	return nil
}

func reference(owner *unstructured.Unstructured) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: owner.GetAPIVersion(), Kind: owner.GetKind(), Name: owner.GetName(), UID: owner.GetUID()}
}
