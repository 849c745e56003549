// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"
	flowcontrolrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"
)

// listing is a storage that records whether a list had its turn when it read the objects.
type listing struct {
	storage.Interface
	had bool
}

func (l *listing) GetList(ctx context.Context, _ string, _ storage.ListOptions, _ runtime.Object) error {
	l.had = ctx.Value(turnKey{}).(*turn).had
	return nil
}

// TestTurnInStorage checks that a list from the watch cache, which may wait for etcd, waits for
// its turn after the objects have been read. A list from etcd waits before that.
func TestTurnInStorage(t *testing.T) {
	counts := flowcontrolrequest.NewStorageObjectCountTracker()
	counts.Set("many", storage.Stats{ObjectCount: manyObjects + 1})
	for name, tc := range map[string]struct {
		opts   storage.ListOptions
		before bool
	}{
		"from the watch cache": {storage.ListOptions{}, false},
		"a page":               {storage.ListOptions{Predicate: storage.SelectionPredicate{Continue: "x"}}, true},
		"an exact version":     {storage.ListOptions{ResourceVersionMatch: metav1.ResourceVersionMatchExact}, true},
	} {
		req, end := newTurns(1, counts).withTurn(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil),
			&genericapirequest.RequestInfo{Verb: "list", Resource: "many"})
		inner := &listing{}
		if err := (limitedStorage{Interface: inner}).GetList(req.Context(), "", tc.opts, nil); err != nil {
			t.Fatal(err)
		}
		if had := req.Context().Value(turnKey{}).(*turn).had; !had || inner.had != tc.before {
			t.Errorf("%s: had its turn: %t, and when the objects were read: %t, want %t", name, had, inner.had, tc.before)
		}
		end()
	}
}
