// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// TestSilence: a request that cannot be authorized makes the server look at once; if kube-apiserver gives no answer for longer than
// its restart takes, the server is not ready, until the next answer. The caller is not told the address.
func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c := &cluster{}
		p := newPermissions(c.client(), nil)
		go p.run(ctx)
		// The next look by itself is in a minute.
		<-time.After(time.Second)
		c.fails = errors.New("dial tcp 192.0.2.1:6443: no route")
		_, _, err := p.authorizer(authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
			return authorizer.DecisionAllow, "", c.fails
		})).Authorize(ctx, authorizer.AttributesRecord{User: &user.DefaultInfo{Name: "ann"}})
		if err == nil || strings.Contains(err.Error(), "192.0.2.1") {
			t.Errorf("answer to the caller: got %v, want an error without the address", err)
		}
		since := time.Now().UTC().Format(time.RFC3339)
		<-time.After(silenceLimit - time.Second)
		if err := p.Check(nil); err != nil {
			t.Errorf("after %s: got %v, want patience", silenceLimit-time.Second, err)
		}
		<-time.After(2 * time.Second)
		want := "kube-apiserver has given no answer since " + since + ", so nobody can be authorized: dial tcp 192.0.2.1:6443: no route"
		if err := p.Check(nil); err == nil || err.Error() != want {
			t.Errorf("after %s: got %v, want %s", silenceLimit+time.Second, err, want)
		}
		c.fails = nil
		<-time.After(2 * time.Second)
		if err := p.Check(nil); err != nil {
			t.Errorf("2 s after it answers again: got %v, want all well", err)
		}
	})
}

// TestReviewsAllowed: the right to ask for a verdict is looked for with the credentials that ask.
func TestReviewsAllowed(t *testing.T) {
	granted := &cluster{}
	refused := &cluster{denied: sets.New("create subjectaccessreviews", "create tokenreviews")}
	for _, tc := range []struct {
		name          string
		core, reviews *cluster
		want          string
	}{
		{"allowed", granted, granted, ""},
		{"allowed to those who ask", refused, granted, ""},
		{"not allowed to those who ask", granted, refused, "this server may not: create subjectaccessreviews.authorization.k8s.io (for authorization), " +
			"create tokenreviews.authentication.k8s.io (for bearer tokens); grant it the rules of manifests/base/rbac.yaml"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			client := tc.reviews.client()
			p := newPermissions(tc.core.client(), nil, need{accessReviews, client}, need{tokenReviews, client})
			p.look(t.Context())
			if got := fmt.Sprint(p.Check(nil)); got != cmp.Or(tc.want, "<nil>") {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}
