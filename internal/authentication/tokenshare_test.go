// SPDX-License-Identifier: Apache-2.0

package authentication

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
)

// TestS15TokenLimitPerAddress checks that tokens of one address wait for each other, are rejected
// when too many wait, and do not delay tokens of another address.
func TestS15TokenLimitPerAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reviewed, running, most atomic.Int32
		share := withAddressLimit(authenticator.RequestFunc(
			func(req *http.Request) (*authenticator.Response, bool, error) {
				reviewed.Add(1)
				if req.RemoteAddr == "192.0.2.2:1" {
					return nil, false, nil
				}
				most.Store(max(most.Load(), running.Add(1)))
				defer running.Add(-1)
				<-time.After(time.Second)
				return nil, false, nil
			}))
		send := func(address, authorization string) error {
			req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
			req.RemoteAddr = address
			req.Header.Set("Authorization", authorization)
			_, _, err := share.AuthenticateRequest(req)
			return err
		}
		from := func(address string) error { return send(address, "Bearer made-up") }
		began := time.Now()
		var rejected atomic.Int32
		var flood sync.WaitGroup
		for range addressReviews + addressReviewsWaiting + 5 {
			flood.Go(func() {
				if from("192.0.2.1:1") != nil {
					rejected.Add(1)
				}
			})
		}
		synctest.Wait()
		if err := from("192.0.2.2:1"); err != nil || time.Since(began) != 0 {
			t.Errorf("another address: got %v after %s, want a response at once", err, time.Since(began))
		}
		if err := send("192.0.2.1:2", ""); err != nil || time.Since(began) != 0 {
			t.Errorf("a request of the address without a token: got %v after %s, want no wait", err, time.Since(began))
		}
		flood.Wait()
		if most.Load() != addressReviews || rejected.Load() != 5 {
			t.Errorf("got %d reviews at a time and %d rejected, want %d and 5", most.Load(), rejected.Load(),
				addressReviews)
		}
	})
}
