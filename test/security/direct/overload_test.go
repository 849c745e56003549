// SPDX-License-Identifier: Apache-2.0

package direct

import (
	"crypto/tls"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
)

// TestS39Overload checks that one user cannot exhaust the server. The user, for whose
// SubjectAccessReviews kube-apiserver sends no response, sends ten times as many concurrent
// requests as the server serves. Authorization comes after API Priority and Fairness, so these
// requests hold seats.
//
// The server rejects them with 429 and Retry-After. Health endpoints and administrators get an
// immediate response. Another user of the same priority gets a seat within two rounds: API
// Priority and Fairness treats every request as a short one until it has ended. The same holds for
// consoles, for which the library would not use seats.
func TestS39Overload(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		path   func(i int) string
		header http.Header
		http2  bool
		// allowed is the final response to the reviews.
		allowed bool
		// mebibytes is the memory for 400 requests: stacks, buffers, and cached data. Each console
		// also has a connection.
		mebibytes uint64
	}{
		{"reads", func(i int) string { return protected + "/" + strconv.Itoa(i) }, nil, true, true, 64},
		{"consoles", func(i int) string { return consolesOf(strconv.Itoa(i)) }, webSocket("v5.channel.k8s.io"),
			false, false, 100},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			const limit = 40
			s := newServer(t, "--max-requests-inflight=30", "--max-mutating-requests-inflight=10")
			proxy := frontProxy(t)
			release := make(chan struct{})
			s.decide(t, func(spec authorizationv1.SubjectAccessReviewSpec) http.HandlerFunc {
				if spec.User != "noisy" {
					return reviewStatus(`"allowed":true`)
				}
				return func(w http.ResponseWriter, req *http.Request) {
					select {
					case <-release:
					case <-req.Context().Done():
					}
					reviewStatus(fmt.Sprintf(`"allowed":%t`, tc.allowed))(w, req)
				}
			})
			s.get(t, proxy, http.Header{"X-Remote-User": {"quiet"}}).want(t, "before", http.StatusOK)
			check := s.costs(t, "400 requests", 20*time.Second, tc.mebibytes)
			// Connections of 50 requests each: a client with more streams than a connection
			// allows, 100, may wait on its side.
			clients := make([]*keeper, 10*limit/50)
			for i := range clients {
				clients[i] = s.keep(t, proxy)
				clients[i].Transport.(*http.Transport).ForceAttemptHTTP2 = tc.http2
				clients[i].try(http.MethodGet, protected, http.Header{"X-Remote-User": {"quiet"}}, "").want(t,
					"the first request of a connection", http.StatusOK)
			}
			header := maps.Clone(tc.header)
			if header == nil {
				header = http.Header{}
			}
			header.Set("X-Remote-User", "noisy")
			responses := make(chan response, 10*limit)
			var noise sync.WaitGroup
			for i := range cap(responses) {
				noise.Go(func() {
					// Each requests another name, so that no decision is shared.
					responses <- clients[i%len(clients)].try(http.MethodGet, tc.path(i), header, "")
				})
			}
			// Each user has slots for 300 waiting requests: 6 queues of 50. Further requests are
			// rejected at once. Their rejection shows that the seats are taken and that all
			// requests have arrived: later ones would wait longer than the rounds that
			// servesOthers allows.
			counts := map[int]int{}
			for range cap(responses) - 300 - limit {
				got := <-responses
				got.want(t, "a first response to the noisy user", http.StatusTooManyRequests)
				if after, err := strconv.Atoi(got.header.Get("Retry-After")); err != nil || after < 1 {
					t.Errorf("Retry-After of the refusal: got %q, want seconds", got.header.Get("Retry-After"))
				}
				counts[got.status]++
			}
			s.servesOthers(t, proxy)
			check()
			close(release)
			noise.Wait()
			close(responses)
			for got := range responses {
				counts[got.status]++
			}
			t.Logf("responses to the noisy user: %v", counts)
			if counts[http.StatusTooManyRequests] < limit ||
				counts[http.StatusOK]+counts[http.StatusSwitchingProtocols] != 0 {
				t.Errorf("responses to the noisy user: %v, want at least %d of 429 and none of 200 or 101", counts, limit)
			}
			if tc.allowed {
				s.get(t, proxy, http.Header{"X-Remote-User": {"noisy"}}).want(t, "the noisy user afterwards",
					http.StatusOK)
			}
		})
	}
}

// servesOthers sends requests of other users beside those of the noisy user.
func (s *server) servesOthers(t *testing.T, proxy *tls.Certificate) {
	t.Helper()
	for _, tc := range []struct {
		what, path string
		header     http.Header
		within     time.Duration
		again      bool // after 429
	}{
		{"/readyz without credentials", "/readyz", nil, 5 * time.Second, false},
		{"/livez without credentials", "/livez", nil, 5 * time.Second, false},
		{"an administrator", protected, http.Header{"X-Remote-User": {"admin"}, "X-Remote-Group": {"system:masters"}},
			5 * time.Second, false},
		// A round is 10 s, the timeout of a review. A request that waits in vain for 15 s also
		// gets 429, and is retried as clients do.
		{"another user", protected, http.Header{"X-Remote-User": {"quiet"}}, 30 * time.Second, true},
	} {
		began, cert := time.Now(), proxy
		if tc.header == nil {
			cert = nil
		}
		got := s.try(cert, http.MethodGet, tc.path, tc.header, "")
		for tc.again && got.status == http.StatusTooManyRequests && time.Since(began) < tc.within {
			got = s.try(cert, http.MethodGet, tc.path, tc.header, "")
		}
		got.want(t, tc.what, http.StatusOK)
		took := time.Since(began)
		t.Logf("%s: response after %s", tc.what, took.Round(time.Millisecond))
		if took > tc.within {
			t.Errorf("%s: response after %s, want within %s", tc.what, took, tc.within)
		}
	}
}
