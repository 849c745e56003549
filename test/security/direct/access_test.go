// SPDX-License-Identifier: Apache-2.0

package direct

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"example.com/extension-apiserver/pkg/envtest"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// reviewStatus returns a script that responds with a SubjectAccessReview with these fields in its
// status.
func reviewStatus(fields string) http.HandlerFunc {
	return reply(http.StatusCreated,
		`{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","status":{`+fields+`}}`)
}

// decide scripts the responses to SubjectAccessReviews by their spec.
func (s *server) decide(t *testing.T, by func(authorizationv1.SubjectAccessReviewSpec) http.HandlerFunc) {
	t.Helper()
	s.script(accessReviews, func(w http.ResponseWriter, req *http.Request) {
		body, _ := readAll(req)
		review := &authorizationv1.SubjectAccessReview{}
		decode(t, body, review)
		by(review.Spec)(w, req)
	})
}

func gadget(name string) string {
	return `{"apiVersion":"workshop.example.com/v1","kind":"Gadget","metadata":{"name":"` + name +
		`"},"spec":{"purpose":"none"}}`
}

// TestS21ReviewFails checks that no request is authorized, and nothing is done, unless
// kube-apiserver responds with a clear yes.
func TestS21ReviewFails(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	scripts := map[string]http.HandlerFunc{
		"500": reply(http.StatusInternalServerError,
			statusOf(http.StatusInternalServerError, metav1.StatusReasonInternalError)),
		"403": reply(http.StatusForbidden, statusOf(http.StatusForbidden, metav1.StatusReasonForbidden)),
		"429": reply(http.StatusTooManyRequests,
			statusOf(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests)),
		"no-response":        hang,
		"broken-connection":  reset,
		"invalid-json":       reply(http.StatusCreated, `{"status":{"allowed":true`),
		"html":               reply(http.StatusOK, "<html>allowed: true</html>"),
		"nothing":            reply(http.StatusCreated, ""),
		"empty-status":       reviewStatus(""),
		"no":                 reviewStatus(`"allowed":false`),
		"denied":             reviewStatus(`"allowed":false,"denied":true`),
		"allowed-and-denied": reviewStatus(`"allowed":true,"denied":true`),
		"an-error":           reviewStatus(`"allowed":false,"evaluationError":"cannot tell"`),
		"a-word":             reviewStatus(`"allowed":"true"`),
		"another-kind":       reply(http.StatusCreated, `{"apiVersion":"v1","kind":"Status","status":"Success"}`),
		"allowed":            reviewStatus(`"allowed":true`),
	}
	s.decide(t, func(spec authorizationv1.SubjectAccessReviewSpec) http.HandlerFunc { return scripts[spec.User] })
	proxy := frontProxy(t)
	var through atomic.Int32
	t.Run("scripts", func(t *testing.T) {
		for user := range scripts {
			t.Run(user, func(t *testing.T) {
				t.Parallel()
				for i, got := range s.five(proxy, user) {
					switch {
					case user == "allowed" && got.status != http.StatusCreated:
						t.Errorf("request %d: %s, want 201", i, got)
					case user != "allowed" && got.status != http.StatusForbidden && got.status < 500:
						t.Errorf("request %d: %s, want 403 or 5xx", i, got)
						through.Add(1)
					}
				}
			})
		}
	})
	t.Logf("%d of %d requests without a clear yes got through", through.Load(), 5*(len(scripts)-1))
	s.decide(t, func(authorizationv1.SubjectAccessReviewSpec) http.HandlerFunc { return reviewStatus(`"allowed":true`) })
	list := s.get(t, proxy, http.Header{"X-Remote-User": {"afterwards"}})
	if got := strings.Count(list.body, `"name":"`); list.status != http.StatusOK || got != 5 ||
		strings.Count(list.body, `"name":"allowed-`) != 5 {
		t.Errorf("gadgets afterwards: %s; want the 5 of the user that was allowed", list)
	}
}

// five creates five gadgets concurrently.
func (s *server) five(proxy *tls.Certificate, user string) []response {
	responses := make([]response, 5)
	var wait sync.WaitGroup
	for i := range responses {
		wait.Go(func() {
			responses[i] = s.try(proxy, http.MethodPost, protected, http.Header{"X-Remote-User": {user}},
				gadget(fmt.Sprintf("%s-%d", user, i)))
		})
	}
	wait.Wait()
	return responses
}

// TestS24Masters checks that the group system:masters is authorized for everything without a
// SubjectAccessReview, as at kube-apiserver. Only the front proxy, or a certificate of the users'
// CA, can put a user into the group.
func TestS24Masters(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.decide(t, func(authorizationv1.SubjectAccessReviewSpec) http.HandlerFunc {
		return reviewStatus(`"allowed":false,"denied":true`)
	})
	proxy := frontProxy(t)
	s.get(t, proxy, http.Header{"X-Remote-User": {"ann"}, "X-Remote-Group": {"system:masters"}}).want(t, "a master",
		http.StatusOK)
	if got := s.access(t); len(got) != 0 {
		t.Errorf("SubjectAccessReviews: %+v, want none", got)
	}
	for _, group := range []string{"System:Masters", "system:masters ,x", "masters", "system:masters/x"} {
		s.get(t, proxy, http.Header{"X-Remote-User": {"ann"}, "X-Remote-Group": {group}}).want(t, "the group "+group,
			http.StatusForbidden)
	}
	s.get(t, proxy, http.Header{"X-Remote-User": {"system:masters"}}).want(t, "the user system:masters",
		http.StatusForbidden)
	// A token's groups are those of kube-apiserver's TokenReview.
	s.script(tokenReviews, reply(http.StatusCreated, `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","status":{"authenticated":true,"user":{"username":"x","groups":["makers"]}}}`))
	header := bearer("token")
	header["X-Remote-Group"] = []string{"system:masters"}
	s.get(t, nil, header).want(t, "a token with a group in a header", http.StatusForbidden)
}

// TestS25Revoked checks that a revoked permission ends when the cached decision expires, and that
// no user benefits from the cached decision of another user.
func TestS25Revoked(t *testing.T) {
	t.Parallel()
	s := newServer(t, "--authorization-webhook-cache-authorized-ttl=2s")
	var yes atomic.Bool
	yes.Store(true)
	s.decide(t, func(authorizationv1.SubjectAccessReviewSpec) http.HandlerFunc {
		return reviewStatus(fmt.Sprintf(`"allowed":%t`, yes.Load()))
	})
	proxy, ann := frontProxy(t), http.Header{"X-Remote-User": {"ann"}}
	s.get(t, proxy, ann).want(t, "while it is allowed", http.StatusOK)
	yes.Store(false)
	// A user with another group, UID or extra is another user: the cached decision does not apply.
	for name, header := range map[string]http.Header{
		"with a group": {"X-Remote-User": {"ann"}, "X-Remote-Group": {"a"}},
		"with a UID":   {"X-Remote-User": {"ann"}, "X-Remote-Uid": {"1"}},
		"with extra":   {"X-Remote-User": {"ann"}, "X-Remote-Extra-Scope": {"all"}},
		"in capitals":  {"X-Remote-User": {"Ann"}},
	} {
		s.get(t, proxy, header).want(t, name, http.StatusForbidden)
	}
	shared.Eventually(t, "the permission to be removed", envtest.WaitTimeout, func(context.Context) error {
		if got := s.get(t, proxy, ann); got.status != http.StatusForbidden {
			return fmt.Errorf("%s, want 403", got)
		}
		return nil
	})
}

// TestS25Cached checks that authorization decisions are cached per distinct SubjectAccessReview,
// and that decisions on huge reviews are not cached.
func TestS25Cached(t *testing.T) {
	t.Parallel()
	s := newServer(t, "--authorization-webhook-cache-authorized-ttl=5m")
	s.decide(t, func(authorizationv1.SubjectAccessReviewSpec) http.HandlerFunc { return reviewStatus(`"allowed":true`) })
	proxy := frontProxy(t)
	huge := strings.Repeat("x", 20_000)
	var got []int
	for _, tc := range []struct {
		path   string
		header http.Header
	}{
		{protected + "/a", http.Header{"X-Remote-User": {"ann"}}},
		{protected + "/b", http.Header{"X-Remote-User": {"ann"}}},
		{protected + "/a", http.Header{"X-Remote-User": {"bea"}}},
		{protected + "/a", http.Header{"X-Remote-User": {"ann"}, "X-Remote-Group": {"a"}}},
		{protected + "/a", http.Header{"X-Remote-User": {"ann"}, "X-Remote-Group": {"b"}}},
		{protected + "/a", http.Header{"X-Remote-User": {"ann"}, "X-Remote-Group": {"a", "b"}}},
		{protected + "/a", http.Header{"X-Remote-User": {"ann"}, "X-Remote-Group": {"b", "a"}}},
		{protected + "/a", http.Header{"X-Remote-User": {"ann"}, "X-Remote-Extra-Scope": {"a"}}},
		{protected + "/a", http.Header{"X-Remote-User": {"ann"}, "X-Remote-Extra-Scope": {"b"}}},
		{protected + "/" + huge, http.Header{"X-Remote-User": {"ann"}}},
	} {
		before := len(s.access(t))
		for range 3 {
			s.try(proxy, http.MethodGet, tc.path, tc.header, "").want(t, "GET a gadget that does not exist",
				http.StatusNotFound)
		}
		got = append(got, len(s.access(t))-before)
	}
	if diff := cmp.Diff([]int{1, 1, 1, 1, 1, 1, 1, 1, 1, 3}, got); diff != "" {
		t.Errorf("SubjectAccessReviews for 3 requests each (-want +got):\n%s", diff)
	}
}
