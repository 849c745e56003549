// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"maps"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

// TestEngineWatchFrom: a watch from a resource version tells each write since, once, in order, as the writes returned it.
// A deletion carries the last state of the object, at the resource version of the deletion.
func TestEngineWatchFrom(t *testing.T) {
	eachReadKind(t, shared, func(t *testing.T, k readKind, namespace string) {
		client := k.client(t, adminConfig(t, shared), namespace)
		k.create(t, client, "before", nil)
		options := metav1.ListOptions{ResourceVersion: mustList(t, client, metav1.ListOptions{}).GetResourceVersion()}
		live := mustWatch(t, client, options)
		want := []watch.Event{
			{Type: watch.Added, Object: k.create(t, client, "a", nil)},
			{Type: watch.Added, Object: k.create(t, client, "b", nil)},
			{Type: watch.Modified, Object: patchLabel(t, client, "a", "step", "1")},
			{Type: watch.Modified, Object: patchLabel(t, client, "b", "step", "2")},
			{Type: watch.Modified, Object: patchLabel(t, client, "a", "step", "3")},
		}
		deleted := want[4].Object.(*unstructured.Unstructured).DeepCopy()
		mustDelete(t, client, "a")
		want = append(want, watch.Event{Type: watch.Deleted, Object: deleted})
		want = append(want, watch.Event{Type: watch.Added, Object: k.create(t, client, "a", nil)})

		// One watch was there when it happened, the other is told afterwards.
		for name, events := range map[string]watch.Interface{"live": live, "replayed": mustWatch(t, client, options)} {
			for i, event := range want {
				got := nextObject(t, events, event.Type)
				if event.Type == watch.Deleted {
					checkDeletion(t, client, deleted.GetResourceVersion(), got)
					deleted.SetResourceVersion(got.GetResourceVersion())
				}
				if diff := cmp.Diff(event.Object, any(got)); diff != "" {
					t.Errorf("%s: object of event %d, %s (-write +watch):\n%s", name, i+1, event.Type, diff)
				}
			}
		}
	})
}

// checkDeletion checks that the object was there until just before the resource version of the event.
func checkDeletion(t *testing.T, client dynamic.ResourceInterface, last string, event *unstructured.Unstructured) {
	t.Helper()
	if compareRV(t, event.GetResourceVersion(), last) < 0 {
		t.Errorf("deletion: got resourceVersion %s, want one that is not below that of the last change, %s", event.GetResourceVersion(), last)
	}
	deletion, err := strconv.ParseInt(event.GetResourceVersion(), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	for resourceVersion, want := range map[int64]int{deletion - 1: 1, deletion: 0} {
		list := mustList(t, client, metav1.ListOptions{
			FieldSelector:   "metadata.name=" + event.GetName(),
			ResourceVersion: strconv.FormatInt(resourceVersion, 10), ResourceVersionMatch: metav1.ResourceVersionMatchExact,
		})
		if len(list.Items) != want {
			t.Errorf("a deletion came with resourceVersion %d: got %d objects of the name at %d, want %d", deletion, len(list.Items), resourceVersion, want)
		}
	}
}

// TestEngineWatchStart: without a resource version, and with "0", a watch first tells what is there, by events ADDED. The
// former starts at the most recent state, the latter at any.
func TestEngineWatchStart(t *testing.T) {
	eachReadKind(t, shared, func(t *testing.T, k readKind, namespace string) {
		client := k.client(t, adminConfig(t, shared), namespace)
		for round, resourceVersion := range []string{"", "0", "", "0", "", "0"} {
			k.create(t, client, fmt.Sprintf("o%d", round), nil)
			if round > 1 {
				patchLabel(t, client, fmt.Sprintf("o%d", round-2), "round", strconv.Itoa(round))
			}
			want := map[string]string{}
			events := mustWatch(t, client, metav1.ListOptions{ResourceVersion: resourceVersion})
			for _, obj := range mustList(t, client, metav1.ListOptions{}).Items {
				want[obj.GetName()] = obj.GetResourceVersion()
			}
			got := map[string]string{}
			if resourceVersion == "" {
				for range want {
					obj := nextObject(t, events, watch.Added)
					got[obj.GetName()] = obj.GetResourceVersion()
				}
			} else {
				// Any state is good, if what follows leads to the present one.
				for !maps.Equal(want, got) {
					event := nextEvent(t, events)
					obj, ok := event.Object.(*unstructured.Unstructured)
					if !ok || event.Type != watch.Added && event.Type != watch.Modified {
						t.Fatalf("watch from 0: got %s %v, want ADDED or MODIFIED", event.Type, event.Object)
					}
					got[obj.GetName()] = obj.GetResourceVersion()
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("resource versions by name, round %d (-list +watch from %q):\n%s", round, resourceVersion, diff)
			}
			// Nothing comes between the present and the next write.
			change := patchLabel(t, client, "o0", "live", strconv.Itoa(round))
			if diff := cmp.Diff(change, nextObject(t, events, watch.Modified)); diff != "" {
				t.Errorf("the next event (-write +watch):\n%s", diff)
			}
		}
	})
}

// TestEngineWatchOne: a watch of one object by its name tells nothing of others, from any start.
func TestEngineWatchOne(t *testing.T) {
	eachReadKind(t, shared, func(t *testing.T, k readKind, namespace string) {
		client := k.client(t, adminConfig(t, shared), namespace)
		start := mustList(t, client, metav1.ListOptions{}).GetResourceVersion()
		k.create(t, client, "other", nil)
		created := k.create(t, client, "one", nil)
		k.create(t, client, "one-more", nil)
		for _, resourceVersion := range []string{start, "", "0"} {
			events := mustWatch(t, client, metav1.ListOptions{FieldSelector: "metadata.name=one", ResourceVersion: resourceVersion})
			if diff := cmp.Diff(created, nextObject(t, events, watch.Added)); diff != "" {
				t.Errorf("watch from %q (-created +watch):\n%s", resourceVersion, diff)
			}
			patchLabel(t, client, "other", "from", "v"+resourceVersion)
			patchLabel(t, client, "one-more", "from", "v"+resourceVersion)
			mustDelete(t, client, "one")
			if got := nextObject(t, events, watch.Deleted).GetName(); got != "one" {
				t.Errorf("watch from %q: got the deletion of %s, want that of one", resourceVersion, got)
			}
			created = k.create(t, client, "one", nil)
			if diff := cmp.Diff(created, nextObject(t, events, watch.Added)); diff != "" {
				t.Errorf("watch from %q, after the object came again (-created +watch):\n%s", resourceVersion, diff)
			}
		}
	})
}
