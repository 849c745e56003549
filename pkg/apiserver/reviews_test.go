// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// TestNoResponse: a request that cannot be authorized triggers a review at once. If kube-apiserver
// does not respond for longer than maxOutage, the server is not ready until the next response.
// The error for the caller does not contain the address of kube-apiserver.
func TestNoResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c := &fakeCluster{}
		p := newPermissions(c.client(), nil)
		go p.run(ctx)
		// The next scheduled review is in one minute.
		<-time.After(time.Second)
		c.fails = errors.New("dial tcp 192.0.2.1:6443: no route")
		_, _, err := newDelegatedAuthorizer(authorizer.AuthorizerFunc(
			func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
				return authorizer.DecisionAllow, "", c.fails
			}), p.requestReview).Authorize(ctx, authorizer.AttributesRecord{User: &user.DefaultInfo{Name: "ann"}})
		if err == nil || strings.Contains(err.Error(), "192.0.2.1") {
			t.Errorf("response to the caller: got %v, want an error without the address", err)
		}
		since := time.Now().UTC().Format(time.RFC3339)
		<-time.After(maxOutage - time.Second)
		if err := p.Check(nil); err != nil {
			t.Errorf("after %s: got %v, want patience", maxOutage-time.Second, err)
		}
		<-time.After(2 * time.Second)
		want := "kube-apiserver has not responded since " + since +
			", so no request can be authorized: dial tcp 192.0.2.1:6443: no route"
		if err := p.Check(nil); err == nil || err.Error() != want {
			t.Errorf("after %s: got %v, want %s", maxOutage+time.Second, err, want)
		}
		c.fails = nil
		<-time.After(2 * time.Second)
		if err := p.Check(nil); err != nil {
			t.Errorf("2 s after it responds again: got %v, want no error", err)
		}
	})
}

// TestSlowReviews: a kube-apiserver that takes 300 ms for each of more than 20 reviews causes no
// outage.
func TestSlowReviews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c := &fakeCluster{slow: 300 * time.Millisecond}
		p := newPermissions(c.client(), nil)
		go p.run(ctx)
		<-time.After(3 * maxOutage)
		if err := p.Check(nil); err != nil || c.reviews < 20 {
			t.Errorf("after %d reviews: got %v, want at least 20 and all well", c.reviews, err)
		}
	})
}

// TestReviewWithoutResponse: a successful review ends an outage, even if the other reviews take
// longer than maxOutage.
func TestReviewWithoutResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c := &fakeCluster{slow: maxOutage / 5}
		p := newPermissions(c.client(), nil)
		p.recordOutage(errors.New("no response"))
		go p.run(ctx)
		<-time.After(2 * maxOutage)
		if p.missing.Load() != nil {
			t.Fatal("all was asked, want some left")
		}
		if s := p.outage.Load(); s != nil {
			t.Errorf("got an outage since %s, want none after a response", s.since)
		}
		cancel()
		<-time.After(100 * c.slow) // for the remaining reviews
	})
}

// TestCancelledRequest: a cancelled request does not indicate an outage of kube-apiserver.
func TestCancelledRequest(t *testing.T) {
	for _, cancelled := range []bool{false, true} {
		ctx, cancel := context.WithCancel(t.Context())
		doubts := 0
		_, _, err := newDelegatedAuthorizer(authorizer.AuthorizerFunc(
			func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
				if cancelled {
					cancel()
				}
				return authorizer.DecisionNoOpinion, "", errors.New("no response")
			}), func() { doubts++ }).Authorize(ctx, authorizer.AttributesRecord{User: &user.DefaultInfo{Name: "ann"}})
		if err == nil || (doubts == 0) != cancelled {
			t.Errorf("cancelled %t: got error %v and %d doubts", cancelled, err, doubts)
		}
		cancel()
	}
}

// TestReason: the name of the authorizer precedes a reason once, although the library's
// authorizer also adds it.
func TestReason(t *testing.T) {
	next := authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision,
		string, error) {
		return authorizer.DecisionNoOpinion, "kubernetes.io/webhook: not on a Sunday", nil
	})
	a, err := mustOptions(testAPI).newAuthorizer(next, func() {})
	if err != nil {
		t.Fatal(err)
	}
	_, reason, err := a.Authorize(t.Context(), authorizer.AttributesRecord{User: &user.DefaultInfo{Name: "ann"}})
	if want := "kubernetes.io/webhook: not on a Sunday"; err != nil || reason != want {
		t.Errorf("reason: got %q and error %v, want %q", reason, err, want)
	}
}

// TestUserReviews: the reviews of one user are limited and do not delay those of another user.
func TestUserReviews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running, most atomic.Int32
		a, err := mustOptions(testAPI).newAuthorizer(authorizer.AuthorizerFunc(
			func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
				if a.GetUser().GetName() == "ann" {
					return authorizer.DecisionAllow, "", nil
				}
				most.Store(max(most.Load(), running.Add(1)))
				defer running.Add(-1)
				<-time.After(time.Second)
				return authorizer.DecisionNoOpinion, "", nil
			}), func() {})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		var mallory sync.WaitGroup
		refused := atomic.Int32{}
		for range userReviews + userReviewsWaiting + 5 {
			mallory.Go(func() {
				if _, _, err := a.Authorize(t.Context(),
					authorizer.AttributesRecord{User: &user.DefaultInfo{Name: "mallory"}}); err != nil {
					refused.Add(1)
				}
			})
		}
		synctest.Wait()
		if _, _, err := a.Authorize(t.Context(),
			authorizer.AttributesRecord{User: &user.DefaultInfo{Name: "ann"}}); err != nil || time.Since(began) != 0 {
			t.Errorf("another user: got %v after %s, want a response at once", err, time.Since(began))
		}
		// The kubelet's probes are also requests of system:anonymous.
		for what, attributes := range map[string]authorizer.AttributesRecord{
			"a probe": {User: &user.DefaultInfo{Name: "mallory"}, Verb: "get", Path: "/livez"},
			"system:masters": {User: &user.DefaultInfo{Name: "mallory", Groups: []string{user.SystemPrivilegedGroup}},
				Verb: "get", Path: "/"},
		} {
			if decision, _, err := a.Authorize(t.Context(), attributes); decision != authorizer.DecisionAllow ||
				err != nil || time.Since(began) != 0 {
				t.Errorf("%s: got %v and %v after %s, want it allowed at once", what, decision, err, time.Since(began))
			}
		}
		mallory.Wait()
		if most.Load() != userReviews || refused.Load() != 5 {
			t.Errorf("got %d questions at a time and %d refused, want %d and 5", most.Load(),
				refused.Load(), userReviews)
		}
	})
}

// TestReviewsAllowed: the permission to send reviews is checked with the credentials that send
// them.
func TestReviewsAllowed(t *testing.T) {
	granted := &fakeCluster{}
	refused := &fakeCluster{denied: sets.New("create subjectaccessreviews", "create tokenreviews", "watch configmaps")}
	for _, tc := range []struct {
		name          string
		core, reviews *fakeCluster
		want          string
	}{
		{"allowed", granted, granted, ""},
		{"allowed to those who ask", refused, granted, ""},
		{"not allowed to those who ask", granted, refused,
			"this server lacks permissions: create subjectaccessreviews.authorization.k8s.io (for authorization), " +
				"create tokenreviews.authentication.k8s.io (for bearer tokens), watch configmaps " +
				"extension-apiserver-authentication in the namespace kube-system (for the front proxy's trust); grant the rules in manifests/base/rbac.yaml and manifests/api"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			client := tc.reviews.client()
			p := newPermissions(tc.core.client(), nil, need{accessReviews, client}, need{tokenReviews, client},
				need{trustReads, client})
			p.review(t.Context())
			if got := fmt.Sprint(p.Check(nil)); got != cmp.Or(tc.want, "<nil>") {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}
