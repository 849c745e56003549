// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"
	flowcontrolrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"

	"example.com/extension-apiserver/internal/objectsizes"
)

// TestTurns checks that lists of many objects are computed one after the other, with users in
// turn, and that other requests do not wait. A turn ends when the list ends, waits for its client,
// or takes too long.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counts := flowcontrolrequest.NewStorageObjectCountTracker()
		counts.Set("many", storage.Stats{ObjectCount: manyObjects + 1})
		counts.Set("large", storage.Stats{ObjectCount: 3, EstimatedAverageObjectSizeBytes: manyBytes})
		counts.Set("few", storage.Stats{ObjectCount: manyObjects, EstimatedAverageObjectSizeBytes: 1})
		turns := newTurns(1, counts, objectsizes.New())
		var began []string
		refused := 0
		finish := make(chan struct{})
		send := func(name, verb, resource, namespace, object string) {
			go func() {
				ctx := genericapirequest.WithUser(withSeat(t.Context()), &user.DefaultInfo{Name: name})
				req, end := turns.withTurn(httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil),
					&genericapirequest.RequestInfo{Verb: verb, Resource: resource, Namespace: namespace, Name: object})
				defer end()
				for range 2 { // a request has one turn
					if err := awaitTurn(req.Context()); err != nil {
						if !apierrors.IsTooManyRequests(err) {
							t.Error(err)
						}
						refused++
						return
					}
				}
				began = append(began, name+" "+verb)
				if name == "unread" {
					defer waits(ctx, func() {})()
				}
				<-finish
			}()
			synctest.Wait()
		}
		send("unread", "list", "large", "", "")
		began = nil
		userWaiting := int(mostWaiting / unknownList)
		for range userWaiting + 1 {
			send("a", "list", "many", "", "")
		}
		send("b", "deletecollection", "many", "", "")
		send("d", "list", "many", "", "one") // in all namespaces
		if len(began) > 0 || refused != 1 {
			t.Fatalf("%q began without a turn, and %d were refused, want 1", began, refused)
		}
		send("c", "get", "many", "default", "one")
		send("c", "list", "many", "default", "one")
		send("c", "list", "few", "", "")
		send("c", "create", "many", "default", "")
		if want := []string{"c get", "c list", "c list", "c create"}; !slices.Equal(began, want) {
			t.Errorf("got %q, want that %q do not wait", began, want)
		}
		began = nil
		<-time.After(2*turnChecks + time.Millisecond)
		<-time.After(2 * longTurn)
		if want := []string{"a list", "b deletecollection", "d list"}; !slices.Equal(began, want) {
			t.Errorf("%q began, want that those of %q had their turns", began, want)
		}
		close(finish)
		synctest.Wait()
		if len(began) != 2+userWaiting {
			t.Errorf("%q began, want %d", began, 2+userWaiting)
		}
	})
}

// TestWaitingLists checks that fewer lists of a user may wait the longer the lists take.
func TestWaitingLists(t *testing.T) {
	for took, want := range map[time.Duration]int{0: manyWaiting, 50 * time.Millisecond: 20, time.Minute: leastWaiting} {
		all := newTurns(1, noCounts, objectsizes.New())
		user, err := all.enter("a")
		if err != nil {
			t.Fatal(err)
		}
		all.leave(user)
		for range 20 {
			all.took(user, took)
		}
		waiting := 0
		for err == nil {
			if _, err = all.enter("a"); err == nil {
				waiting++
			}
		}
		if waiting != want && waiting != want-1 { // the mean is not quite reached
			t.Errorf("%d lists that take %s wait, want %d", waiting, took, want)
		}
	}
}
