// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
)

// TestEngineWatchBookmarks: timeoutSeconds ends a watch as it should end, and a client that asked for bookmarks gets one
// just before, from which it can go on without being told anything twice. Another client gets none.
func TestEngineWatchBookmarks(t *testing.T) {
	t.Parallel()
	namespace, other := newNamespace(t, shared), newNamespace(t, shared)
	r := newReader(t, shared)
	finish := func(f func() (rawAnswer, error)) rawAnswer {
		t.Helper()
		a, err := f()
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	var checks []func(*testing.T)
	for _, k := range readKinds {
		client := k.client(t, adminConfig(t, shared), namespace)
		// The server sends the bookmark 2 s before the end.
		path := k.path(namespace) + "?watch=1&timeoutSeconds=7&resourceVersion=" + mustList(t, client, metav1.ListOptions{}).GetResourceVersion()
		without, err := r.start(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		with, err := r.start(t.Context(), path+"&allowWatchBookmarks=true")
		if err != nil {
			t.Fatal(err)
		}
		created := k.create(t, client, "o", nil)
		// The watches do not tell this write, but the bookmark counts it.
		last := k.create(t, k.client(t, adminConfig(t, shared), other), "o", nil)
		checks = append(checks, func(t *testing.T) {
			if bookmarks := checkEvents(t, finish(without), created); len(bookmarks) > 0 {
				t.Errorf("got %d bookmarks without allowWatchBookmarks, want none", len(bookmarks))
			}
			bookmark := checkEvents(t, finish(with), created)
			if len(bookmark) == 0 {
				t.Fatal("got no bookmark, want one")
			}
			at := bookmark[len(bookmark)-1].GetResourceVersion()
			if compareRV(t, at, last.GetResourceVersion()) < 0 {
				t.Errorf("got a bookmark at %s, want one at %s or later: that was written before", at, last.GetResourceVersion())
			}
			for _, b := range bookmark {
				checkBookmark(t, k, b, nil)
			}
			events := mustWatch(t, client, metav1.ListOptions{ResourceVersion: at})
			change := patchLabel(t, client, "o", "after", "bookmark")
			if diff := cmp.Diff(change, nextObject(t, events, watch.Modified)); diff != "" {
				t.Errorf("first event after the bookmark (-write +watch):\n%s", diff)
			}
		})
	}
	for i, check := range checks {
		t.Run(readKinds[i].resource.Resource, check)
	}
}

// checkEvents checks that the first event of a watch is ADDED with the object, and returns the bookmarks after it; nothing
// else may come.
func checkEvents(t *testing.T, a rawAnswer, created *unstructured.Unstructured) []*unstructured.Unstructured {
	t.Helper()
	var bookmarks []*unstructured.Unstructured
	events := a.events(t)
	for i, event := range events {
		obj := &unstructured.Unstructured{}
		if err := obj.UnmarshalJSON(event.Object); err != nil {
			t.Fatal(err)
		}
		switch {
		case i == 0 && event.Type == watch.Added:
			if diff := cmp.Diff(created, obj); diff != "" {
				t.Errorf("ADDED (-created +watch):\n%s", diff)
			}
		case i > 0 && event.Type == watch.Bookmark:
			bookmarks = append(bookmarks, obj)
		default:
			t.Errorf("got event %d %s %s, want ADDED and then BOOKMARKs only", i+1, event.Type, event.Object)
		}
	}
	if len(events) == 0 {
		t.Error("got no events, want ADDED")
	}
	return bookmarks
}

// checkBookmark checks that a bookmark says nothing but kind, resource version and the annotations.
func checkBookmark(t *testing.T, k readKind, bookmark *unstructured.Unstructured, annotations map[string]string) {
	t.Helper()
	want := map[string]any{"resourceVersion": bookmark.GetResourceVersion()}
	if len(annotations) > 0 {
		want["annotations"] = map[string]any{}
		for key, value := range annotations {
			want["annotations"].(map[string]any)[key] = value
		}
	}
	metadata, _, _ := unstructured.NestedMap(bookmark.Object, "metadata")
	if metadata["creationTimestamp"] == nil {
		delete(metadata, "creationTimestamp")
	}
	if diff := cmp.Diff(want, metadata); diff != "" || bookmark.GetResourceVersion() == "" {
		t.Errorf("metadata of a bookmark (-want +got):\n%s", diff)
	}
	if bookmark.GetKind() != k.kind || bookmark.GetAPIVersion() != k.resource.GroupVersion().String() {
		t.Errorf("got a bookmark of %s %s, want %s %s", bookmark.GetAPIVersion(), bookmark.GetKind(), k.resource.GroupVersion(), k.kind)
	}
	rest := maps.Clone(bookmark.Object)
	for _, field := range []string{"apiVersion", "kind", "metadata"} {
		delete(rest, field)
	}
	if !emptyJSON(rest) {
		t.Errorf("got a bookmark with %v, want fields without value at most", rest)
	}
}

// emptyJSON tells whether a JSON value says nothing: fields that a kind always writes are there in a bookmark too.
func emptyJSON(value any) bool {
	switch v := value.(type) {
	case map[string]any:
		for _, field := range v {
			if !emptyJSON(field) {
				return false
			}
		}
		return true
	case []any:
		return len(v) == 0
	default:
		return v == nil || v == "" || v == int64(0) || v == false
	}
}
