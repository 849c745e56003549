// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"
	flowcontrolrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"

	"example.com/extension-apiserver/internal/objectsizes"
)

// listing is a storage that lists pods, and records whether a list had its turn when it read the
// objects.
type listing struct {
	storage.Interface
	pods int
	had  bool
}

func (l *listing) GetList(ctx context.Context, _ string, _ storage.ListOptions, list runtime.Object) error {
	l.had = ctx.Value(turnKey{}).(*turn).had
	list.(*corev1.PodList).Items = make([]corev1.Pod, l.pods)
	return nil
}

// TestTurnInStorage checks that a list from the watch cache, which may wait for etcd, waits for
// its turn after the objects have been read, and only if they are many. A list from etcd, or with a
// long selector, waits before that.
func TestTurnInStorage(t *testing.T) {
	counts := flowcontrolrequest.NewStorageObjectCountTracker()
	counts.Set("many", storage.Stats{ObjectCount: manyObjects + 1})
	values := make([]string, manyComparisons/manyObjects)
	for i := range values {
		values[i] = fmt.Sprint(i)
	}
	notIn, err := labels.NewRequirement("a", selection.NotIn, values)
	if err != nil {
		t.Fatal(err)
	}
	longSelector := labels.NewSelector().Add(*notIn)
	for name, tc := range map[string]struct {
		opts        storage.ListOptions
		pods        int
		before, had bool
	}{
		"from the watch cache": {pods: manyObjects + 1, had: true},
		"few objects":          {pods: manyObjects},
		"a page": {opts: storage.ListOptions{Predicate: storage.SelectionPredicate{Continue: "x"}}, before: true,
			had: true},
		"an exact version": {opts: storage.ListOptions{ResourceVersionMatch: metav1.ResourceVersionMatchExact},
			before: true, had: true},
		"a long selector": {opts: storage.ListOptions{Predicate: storage.SelectionPredicate{
			Field: fields.Everything(), Label: longSelector}}, before: true, had: true},
		"a short selector": {opts: storage.ListOptions{Predicate: storage.SelectionPredicate{
			Field: fields.OneTermEqualSelector("metadata.name", "a"), Label: labels.Everything()}}},
	} {
		req, end := newTurns(1, counts, objectsizes.New()).withTurn(httptest.NewRequestWithContext(t.Context(),
			http.MethodGet, "/", nil), &genericapirequest.RequestInfo{Verb: "list", Resource: "many"})
		inner := &listing{pods: tc.pods}
		if err := (limitedStorage{Interface: inner}).GetList(req.Context(), "", tc.opts, &corev1.PodList{}); err != nil {
			t.Fatal(err)
		}
		if had := req.Context().Value(turnKey{}).(*turn).had; had != tc.had || inner.had != tc.before {
			t.Errorf("%s: had its turn: %t, and when the objects were read: %t, want %t, %t", name, had, inner.had, tc.had,
				tc.before)
		}
		end()
	}
}

// blockedGets is a storage whose gets wait.
type blockedGets struct {
	storage.Interface
	inside int
	leave  chan struct{}
}

func (b *blockedGets) Get(context.Context, string, storage.GetOptions, runtime.Object) error {
	b.inside++
	<-b.leave
	return nil
}

// TestReadsOfStreams checks that the objects that the streams of a user read at a time fit into the
// user's share of the memory.
func TestReadsOfStreams(t *testing.T) {
	for name, want := range map[string]int{"large": 0, "other": 100} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, inner := testMemory(t), &blockedGets{leave: make(chan struct{})}
				resource := schema.GroupResource{Group: "example.com", Resource: "many"}
				if want == 0 {
					want = int(m.perUser / (objectByteCost * m.sizes.Object(resource, "ns", name)))
				}
				s := limitedStorage{inner, resource, nil}
				handler := m.WithLimit(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
					if err := s.Get(req.Context(), "", storage.GetOptions{}, nil); err != nil {
						t.Error(err)
					}
				}), func(*genericapirequest.RequestInfo) bool { return true })
				for range 100 {
					go handler.ServeHTTP(httptest.NewRecorder(), memoryRequest(t.Context(), "ann",
						genericapirequest.RequestInfo{Verb: "get", Resource: "many", Namespace: "ns", Name: name}, "", "", "", nil))
				}
				synctest.Wait()
				if inner.inside != want {
					t.Errorf("%d of 100 objects are read at a time, want %d", inner.inside, want)
				}
				close(inner.leave)
				synctest.Wait()
				if inner.inside != 100 {
					t.Errorf("%d objects were read, want 100", inner.inside)
				}
			})
		})
	}
}
