// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"example.com/extension-apiserver/pkg/envtest"
)

// initialEventsEnd marks the bookmark after the last object of a watch-list.
var initialEventsEnd = map[string]string{metav1.InitialEventsAnnotationKey: "true"}

// watchListOptions are the options of a watch that begins with the objects that are there, as informers use it (KEP-3157).
func watchListOptions(resourceVersion string) metav1.ListOptions {
	return metav1.ListOptions{
		SendInitialEvents: new(true), AllowWatchBookmarks: true,
		ResourceVersion: resourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	}
}

// initialEvents reads a watch-list until its bookmark, which tells the resource version of the objects before it. They come
// in any order, and are returned in that of their names.
func initialEvents(t *testing.T, k readKind, events watch.Interface) (objects []unstructured.Unstructured, resourceVersion string) {
	t.Helper()
	objects = []unstructured.Unstructured{}
	for {
		event := nextEvent(t, events)
		obj, ok := event.Object.(*unstructured.Unstructured)
		if !ok {
			t.Fatalf("watch-list: got %s %v, want an object", event.Type, event.Object)
		}
		switch event.Type {
		case watch.Added:
			objects = append(objects, *obj)
		case watch.Bookmark:
			checkBookmark(t, k, obj, initialEventsEnd)
			sortByName(objects)
			return objects, obj.GetResourceVersion()
		default:
			t.Fatalf("watch-list: got %s %v before the bookmark, want ADDED", event.Type, event.Object)
		}
	}
}

// withoutBookmarks passes over the bookmarks, which a client that asked for them may be sent at any time.
func withoutBookmarks(events watch.Interface) watch.Interface {
	return watch.Filter(events, func(event watch.Event) (watch.Event, bool) { return event, event.Type != watch.Bookmark })
}

// TestEngineWatchList: a watch-list is a list that promises as much as a list with the same resource version, then a
// bookmark that ends it, and then a watch without a gap.
func TestEngineWatchList(t *testing.T) {
	eachReadKind(t, shared, func(t *testing.T, k readKind, namespace string) { testWatchList(t, shared, k, namespace) })
}

func testWatchList(t *testing.T, e *envtest.Environment, k readKind, namespace string) {
	h := newHistory(t, e, k, namespace)
	client := k.client(t, adminConfig(t, e), namespace)
	for _, tc := range []struct{ promise, resourceVersion, oldest string }{
		{rvMostRecent, "", h.y},
		{rvAny, "0", h.moments[0].resourceVersion},
		{rvNotOlder, h.x, h.x},
		{rvNotOlder, h.y, h.y},
	} {
		t.Run(fmt.Sprintf("%s %q", tc.promise, tc.resourceVersion), func(t *testing.T) {
			options := watchListOptions(tc.resourceVersion)
			events := mustWatch(t, client, options)
			objects, end := initialEvents(t, k, events)
			if compareRV(t, end, tc.oldest) < 0 {
				t.Errorf("got the bookmark at %s, want it at %s or later", end, tc.oldest)
			}
			if diff := cmp.Diff(h.at(t, end), objects); diff != "" {
				t.Errorf("not the objects at %s (-want +got):\n%s", end, diff)
			}
			events = withoutBookmarks(events)
			// From here on the history ends: the object that is added goes again.
			created := k.create(t, client, "live", nil)
			if diff := cmp.Diff(created, nextObject(t, events, watch.Added)); diff != "" {
				t.Errorf("the event after the bookmark (-created +watch):\n%s", diff)
			}
			mustDelete(t, client, "live")
			nextObject(t, events, watch.Deleted)

			options.AllowWatchBookmarks = false
			events = mustWatch(t, client, options)
			want := h.at(t, h.y)
			got := []unstructured.Unstructured{}
			for range want {
				got = append(got, *nextObject(t, events, watch.Added))
			}
			sortByName(got)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("without bookmarks: objects (-want +got):\n%s", diff)
			}
			k.create(t, client, "live", nil)
			if got := nextObject(t, events, watch.Added).GetName(); got != "live" {
				t.Errorf("without bookmarks: got ADDED %s after the objects, want live", got)
			}
			mustDelete(t, client, "live")
			nextObject(t, events, watch.Deleted)
		})
	}
}

// TestEngineWatchListSelection: the bookmark comes after exactly the objects that are selected, even if there are none; a
// client that waits for it would hang.
func TestEngineWatchListSelection(t *testing.T) {
	eachReadKind(t, shared, func(t *testing.T, k readKind, namespace string) {
		config := adminConfig(t, shared)
		none := newNamespace(t, shared)
		for _, name := range []string{"a", "b", "c"} {
			k.create(t, k.client(t, config, namespace), name, map[string]string{"name": name, "test": namespace})
		}
		for _, tc := range []struct {
			name, namespace, labels, fields string
			want                            []string
		}{
			{"empty namespace", none, "", "", []string{}},
			{"labels of none", namespace, "name=d", "", []string{}},
			{"labels", namespace, "name in (a,c)", "", []string{"a", "c"}},
			{"name", namespace, "", "metadata.name=b", []string{"b"}},
			{"name of none", namespace, "", "metadata.name=d", []string{}},
			{"all namespaces, labels", "", "test=" + namespace, "", []string{"a", "b", "c"}},
			{"all namespaces, fields", "", "", "metadata.namespace=" + namespace + ",metadata.name!=b", []string{"a", "c"}},
		} {
			t.Run(tc.name, func(t *testing.T) {
				options := watchListOptions("")
				options.LabelSelector, options.FieldSelector = tc.labels, tc.fields
				events := mustWatch(t, k.client(t, config, tc.namespace), options)
				objects, _ := initialEvents(t, k, events)
				if diff := cmp.Diff(tc.want, objectNames(objects)); diff != "" {
					t.Errorf("objects before the bookmark (-want +got):\n%s", diff)
				}
			})
		}
	})
}

// TestEngineWatchWithoutInitialEvents: a client that refuses the initial events gets the changes from now on.
func TestEngineWatchWithoutInitialEvents(t *testing.T) {
	eachReadKind(t, shared, func(t *testing.T, k readKind, namespace string) {
		client := k.client(t, adminConfig(t, shared), namespace)
		k.create(t, client, "a", nil)
		options := watchListOptions("")
		options.SendInitialEvents = new(false)
		events := withoutBookmarks(mustWatch(t, client, options))
		created := k.create(t, client, "b", nil)
		if diff := cmp.Diff(created, nextObject(t, events, watch.Added)); diff != "" {
			t.Errorf("first event (-created +watch):\n%s", diff)
		}
	})
}

// requestLog notes what a client asks for.
type requestLog struct {
	next http.RoundTripper
	mu   sync.Mutex
	seen []string
}

func (r *requestLog) RoundTrip(req *http.Request) (*http.Response, error) {
	query := req.URL.Query()
	r.mu.Lock()
	r.seen = append(r.seen, fmt.Sprintf("watch=%s sendInitialEvents=%s", query.Get("watch"), query.Get("sendInitialEvents")))
	r.mu.Unlock()
	return r.next.RoundTrip(req)
}

// TestEngineInformer: the informers of controllers fill themselves by one watch-list and follow it; they fall back to a
// list when the server does not do as they expect.
func TestEngineInformer(t *testing.T) {
	eachReadKind(t, shared, func(t *testing.T, k readKind, namespace string) {
		log := &requestLog{}
		config := rest.CopyConfig(adminConfig(t, shared))
		config.Wrap(func(rt http.RoundTripper) http.RoundTripper { log.next = rt; return log })
		client, err := dynamic.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		writer := k.client(t, adminConfig(t, shared), namespace)
		k.create(t, writer, "a", nil)
		k.create(t, writer, "b", nil)
		informer := dynamicinformer.NewFilteredDynamicInformer(client, k.resource, namespace, 0, cache.Indexers{}, nil).Informer()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		go informer.RunWithContext(ctx)
		if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			t.Fatalf("the informer has not synced within %s; it sent %q", patience, log.seen)
		}
		if keys := informer.GetStore().ListKeys(); len(keys) != 2 {
			t.Errorf("got %v in the store, want two objects", keys)
		}
		mustDelete(t, writer, "a")
		changed := patchLabel(t, writer, "b", "changed", "yes")
		shared.Eventually(t, "the informer to follow", patience, func(context.Context) error {
			want, got := []any{any(changed)}, informer.GetStore().List()
			if diff := cmp.Diff(want, got); diff != "" {
				return fmt.Errorf("store (-want +got):\n%s", diff)
			}
			return nil
		})
		log.mu.Lock()
		defer log.mu.Unlock()
		if want := []string{"watch=true sendInitialEvents=true"}; !slices.Equal(log.seen, want) {
			t.Errorf("got requests %q, want %q", log.seen, want)
		}
	})
}
