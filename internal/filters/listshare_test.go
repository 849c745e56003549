// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// readLists returns a function that reads a list of so many objects with the share of a request, and
// how often the list was read. The object large has largestObject bytes, and the others have few.
func readLists(ctx context.Context, m *Memory, user, query, accept string, names ...string) (reads int,
	release func(), err error) {
	info := &genericapirequest.RequestInfo{Verb: "list", Resource: "many", Namespace: "ns", APIGroup: "example.com"}
	req, release := m.withListShare(memoryRequest(ctx, user, *info, query, accept, "", nil), info)
	list := &metav1.PartialObjectMetadataList{}
	err = getList(req.Context(), list, func() error {
		if n := meta.LenList(list); n > 0 {
			return fmt.Errorf("the list has %d objects before it is read", n)
		}
		reads++
		for _, name := range names {
			list.Items = append(list.Items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "ns",
				Name: name}})
		}
		return nil
	})
	return reads, release, err
}

// TestListShare checks that a list holds memory for the objects that it has, of which one may be the
// largest of its namespace.
func TestListShare(t *testing.T) {
	const table = "application/json;as=Table;g=meta.k8s.io;v=v1"
	many := make([]string, 1000)
	for i := range many {
		many[i] = fmt.Sprint("w", i)
	}
	for name, tc := range map[string]struct {
		names         []string
		query, accept string
		want          int64
	}{
		"no objects":                 {nil, "resourceVersion=0", "", 0},
		"a few":                      {many[:100], "resourceVersion=0", "", 100*listedCost + objectByteCost*largestObject},
		"many":                       {many, "resourceVersion=0", "", 1000*listedCost + gzipCost + objectByteCost*largestObject},
		"a large one":                {[]string{"large"}, "resourceVersion=0", "", objectByteCost*largestObject + listedCost},
		"a large one in a Table":     {[]string{"large"}, "resourceVersion=0", table, wholeByteCost*largestObject + wholeObjectCost},
		"not read from the cache":    {[]string{"large"}, "continue=x", "", 0},
		"indented, for a later cost": {[]string{"large"}, "pretty=1", "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			m := testMemory(t)
			reads, release, err := readLists(t.Context(), m, "ann", tc.query, tc.accept, tc.names...)
			if err != nil || reads != 1 {
				t.Fatalf("got %v and %d reads, want one", err, reads)
			}
			if got := m.budget.Held("ann"); got < tc.want*9/10 || got > tc.want*11/10 {
				t.Errorf("the list holds %d bytes, want %d", got, tc.want)
			}
			release()
			if held, reading := m.budget.InUse(), m.reads.InUse(); held+reading > 0 {
				t.Errorf("after the request: %d and %d bytes are held", held, reading)
			}
		})
	}
	t.Run("too large for a Table", func(t *testing.T) {
		names := make([]string, 50)
		for i := range names {
			names[i] = "large"
		}
		_, _, err := readLists(t.Context(), testMemory(t), "ann", "resourceVersion=0", table, names...)
		if !apierrors.IsRequestEntityTooLargeError(err) {
			t.Errorf("got %v, want 413", err)
		}
	})
}

// TestListSharePanic checks that a list whose reading panics holds no memory.
func TestListSharePanic(t *testing.T) {
	m := testMemory(t)
	info := &genericapirequest.RequestInfo{Verb: "list", Resource: "many", Namespace: "ns", APIGroup: "example.com"}
	req, release := m.withListShare(memoryRequest(t.Context(), "ann", *info, "resourceVersion=0", "", "", nil), info)
	defer release()
	defer func() {
		if reason := recover(); reason == nil || m.reads.InUse() > 0 {
			t.Errorf("after the panic %v: %d bytes are held", reason, m.reads.InUse())
		}
	}()
	_ = getList(req.Context(), &metav1.PartialObjectMetadataList{}, func() error { panic("unreadable") })
}

// TestListShareWaits checks that a list that must wait for memory holds none meanwhile, and is read
// again, and that an empty list does not wait.
func TestListShareWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := testMemory(t)
		release, err := m.budget.Take(t.Context(), "bob", m.total)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan int)
		go func() {
			reads, stop, err := readLists(t.Context(), m, "ann", "resourceVersion=0", "", "large")
			if err != nil {
				t.Error(err)
			}
			stop()
			done <- reads
		}()
		synctest.Wait()
		if reading := m.reads.InUse(); reading > 0 {
			t.Errorf("a list that waits holds %d bytes of those that are read", reading)
		}
		// The largest object of the namespace may be in any list, except one without objects.
		if reads, _, err := readLists(t.Context(), m, "eve", "resourceVersion=0", ""); err != nil || reads != 1 {
			t.Errorf("an empty list: got %v and %d reads, want one", err, reads)
		}
		release()
		if reads := <-done; reads != 2 {
			t.Errorf("the list was read %d times, want twice", reads)
		}
		release, err = m.budget.Take(t.Context(), "bob", m.total)
		if err != nil {
			t.Fatal(err)
		}
		defer release()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, _, err := readLists(ctx, m, "ann", "resourceVersion=0", "", "large"); apierrors.ReasonForError(err) !=
			metav1.StatusReasonTooManyRequests {
			t.Errorf("a list that waits until its timeout: got %v, want %d", err, http.StatusTooManyRequests)
		}
	})
}
