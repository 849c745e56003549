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

// names: the library asks 200 times a second, after 400 at once. 9,000 names take 45 s and fill what is remembered;
// 100,000 take 9 minutes: go test ./test/security/direct -run TestS25Bounded -names 100000 -timeout 20m
var names = flag.Int("names", 9000, "how many names TestS25Bounded asks for, more than 8,400")

// TestS25Bounded: one user who asks for ever new names, with ever new extras, fills the memory of verdicts with at most
// 8192 of them, and the oldest goes first. The names are nearly as long as those that are not remembered at all: 10,000
// bytes, and the path counts too. So this is the most that names can cost.
func TestS25Bounded(t *testing.T) {
	t.Parallel()
	s := newServer(t, "--authorization-webhook-cache-authorized-ttl=10m")
	s.script(accessReviews, verdict(`"allowed":true`))
	ann := s.keep(t, frontProxy(t))
	const remembered, atOnce = 8192, 50
	count := *names
	long := strings.Repeat("x", 4900)
	ask := func(i int) answer {
		header, name := http.Header{"X-Remote-User": {"ann"}}, fmt.Sprintf("%s-%d", long, i)
		if i%2 == 0 {
			// What else is known of a user is part of the question too.
			header["X-Remote-Extra-Session"], name = []string{name}, long
		}
		return ann.try(http.MethodGet, protected+"/"+name, header, "")
	}
	check := s.costs(t, fmt.Sprintf("%d names", count), time.Duration(count)*13*time.Millisecond, 200)
	began := time.Now()
	var next, failed atomic.Int64
	var askers sync.WaitGroup
	for range atOnce {
		askers.Go(func() {
			for i := int(next.Add(1)); i <= count; i = int(next.Add(1)) {
				if got := ask(i); got.status != http.StatusNotFound && failed.Add(1) == 1 {
					t.Errorf("GET name %d: %s, want 404", i, got)
				}
				if i%1000 == 0 {
					s.forget()
				}
			}
		})
	}
	askers.Wait()
	t.Logf("%d names in %s", count, time.Since(began).Round(time.Second))
	asked := func(i int) int {
		s.forget()
		ask(i)
		return len(s.requests(accessReviews))
	}
	// The last is remembered, and so is one that is nearly as old as the memory reaches; the first is not any more.
	for _, tc := range []struct{ name, want int }{{count, 0}, {count - remembered + 2*atOnce, 0}, {1, 1},
		{count - remembered - 2*atOnce, 1}} {
		if got := asked(tc.name); got != tc.want {
			t.Errorf("SubjectAccessReviews for name %d when it is asked for again: got %d, want %d",
				tc.name, got, tc.want)
		}
	}
	// 8192 questions of 5 and 10 kB are 60 MiB, however many came before; the collector lets them, and what each
	// request needs for a moment, double. The CPU is that of the requests and reviews: 13 ms each is far more than they
	// need.
	check()
}
