// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"maps"
	"net/http"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"

	"example.com/extension-apiserver/pkg/envtest"
)

// readHistory is what a namespace held at each resource version, as a watch told it. With it, a test knows what an answer of
// any resource version must contain.
type readHistory struct {
	moments []readMoment
	// x is the resource version of a moment in the past, y that of the last write.
	x, y string
}

type readMoment struct {
	resourceVersion string
	objects         map[string]unstructured.Unstructured
}

// newHistory writes: at x there are a and b; after it a changes, b is deleted and c is created, at y.
func newHistory(t *testing.T, e *envtest.Environment, k readKind, namespace string) readHistory {
	t.Helper()
	client := k.client(t, adminConfig(t, e), namespace)
	start := mustList(t, client, metav1.ListOptions{}).GetResourceVersion()
	events := mustWatch(t, client, metav1.ListOptions{ResourceVersion: start})
	h := readHistory{moments: []readMoment{{start, map[string]unstructured.Unstructured{}}}}
	last := func() readMoment { return h.moments[len(h.moments)-1] }
	observe := func(want watch.EventType) {
		t.Helper()
		obj := nextObject(t, events, want)
		objects := maps.Clone(last().objects)
		objects[obj.GetName()] = *obj
		if want == watch.Deleted {
			delete(objects, obj.GetName())
		}
		h.moments = append(h.moments, readMoment{obj.GetResourceVersion(), objects})
	}
	k.create(t, client, "a", nil)
	observe(watch.Added)
	k.create(t, client, "b", nil)
	observe(watch.Added)
	h.x = last().resourceVersion
	patchLabel(t, client, "a", "changed", "yes")
	observe(watch.Modified)
	mustDelete(t, client, "b")
	observe(watch.Deleted)
	k.create(t, client, "c", nil)
	observe(watch.Added)
	h.y = last().resourceVersion
	return h
}

// at returns the objects at a resource version, in order.
func (h readHistory) at(t *testing.T, resourceVersion string) []unstructured.Unstructured {
	t.Helper()
	objects := h.moments[0].objects
	for _, m := range h.moments {
		if compareRV(t, m.resourceVersion, resourceVersion) <= 0 {
			objects = m.objects
		}
	}
	sorted := slices.Collect(maps.Values(objects))
	sortByName(sorted)
	return sorted
}

// showed tells whether the answer to a get is right for some moment since oldest.
func (h readHistory) showed(t *testing.T, name, oldest string, a rawAnswer) bool {
	t.Helper()
	for _, m := range h.moments {
		if compareRV(t, m.resourceVersion, oldest) < 0 {
			continue
		}
		obj, exists := m.objects[name]
		if !exists {
			if a.code == http.StatusNotFound && a.status(t).Reason == metav1.StatusReasonNotFound {
				return true
			}
			continue
		}
		got := &unstructured.Unstructured{}
		if a.code == http.StatusOK && got.UnmarshalJSON(a.body) == nil && cmp.Equal(obj.Object, got.Object) {
			return true
		}
	}
	return false
}
