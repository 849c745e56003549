// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
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
