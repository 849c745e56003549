// SPDX-License-Identifier: Apache-2.0

package direct

import (
	"flag"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// names: the library sends 200 requests a second, after a burst of 400. 9,000 names take 45 s and
// fill the cache; 100,000 take 9 minutes: go test ./test/security/direct -run TestS25Bounded
// -names 100000 -timeout 20m
var names = flag.Int("names", 9000, "how many names TestS25Bounded requests, more than 8,400")

// TestS25Bounded checks that one user who requests different names, with different extras, fills
// the cache of authorization decisions with at most 8192 entries, and that the oldest is evicted
// first. The names are nearly as long as those that are never cached: 10,000 bytes, including the
// path. So this is the maximum cost of names.
func TestS25Bounded(t *testing.T) {
	t.Parallel()
	s := newServer(t, "--authorization-webhook-cache-authorized-ttl=10m")
	s.script(accessReviews, reviewStatus(`"allowed":true`))
	ann := s.keep(t, frontProxy(t))
	const cached, atOnce = 8192, 50
	count := *names
	long := strings.Repeat("x", 4900)
	attempt := func(i int) response {
		header, name := http.Header{"X-Remote-User": {"ann"}}, fmt.Sprintf("%s-%d", long, i)
		if i%2 == 0 {
			// The other attributes of a user are part of the cache key too.
			header["X-Remote-Extra-Session"], name = []string{name}, long
		}
		return ann.try(http.MethodGet, protected+"/"+name, header, "")
	}
	check := s.costs(t, fmt.Sprintf("%d names", count), time.Duration(count)*13*time.Millisecond, 200)
	began := time.Now()
	var next, failed atomic.Int64
	var senders sync.WaitGroup
	for range atOnce {
		senders.Go(func() {
			for i := int(next.Add(1)); i <= count; i = int(next.Add(1)) {
				if got := attempt(i); got.status != http.StatusNotFound && failed.Add(1) == 1 {
					t.Errorf("GET name %d: %s, want 404", i, got)
				}
				if i%1000 == 0 {
					s.clearRequests()
				}
			}
		})
	}
	senders.Wait()
	t.Logf("%d names in %s", count, time.Since(began).Round(time.Second))
	reviewed := func(i int) int {
		s.clearRequests()
		attempt(i)
		return len(s.requests(accessReviews))
	}
	// The cache contains the last name and one that is nearly as old as its capacity; it no longer
	// contains the first.
	for _, tc := range []struct{ name, want int }{{count, 0}, {count - cached + 2*atOnce, 0}, {1, 1},
		{count - cached - 2*atOnce, 1}} {
		if got := reviewed(tc.name); got != tc.want {
			t.Errorf("SubjectAccessReviews for name %d when it is requested again: got %d, want %d",
				tc.name, got, tc.want)
		}
	}
	// 8192 reviews of 5 and 10 kB are 60 MiB, however many came before. Garbage collection lets
	// them double, together with the memory that each request needs for a moment. The CPU time is
	// that of the requests and reviews: 13 ms each is far more than they need.
	check()
}
