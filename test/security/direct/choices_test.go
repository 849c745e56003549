// SPDX-License-Identifier: Apache-2.0

package direct

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"example.com/extension-apiserver/pkg/envtest"

	authorizationv1 "k8s.io/api/authorization/v1"

	"example.com/extension-apiserver/internal/certs"
)

// TestS11WeakTrust checks that the server refuses to trust a front proxy of any name, or one whose
// CA also signs users, unless a flag tolerates it. Then the log has a warning. Otherwise its
// certificate authenticates no user either, even if the users' CA signed it.
func TestS11WeakTrust(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		weakness string
		weaken   func(data map[string]string)
	}{
		{"AnyName", func(data map[string]string) { data["requestheader-allowed-names"] = "[]" }},
		{"SharedCA", func(data map[string]string) { data["client-ca-file"] += data["requestheader-client-ca-file"] }},
	} {
		t.Run(tc.weakness, func(t *testing.T) {
			t.Parallel()
			t.Run("at start", func(t *testing.T) {
				t.Parallel()
				r := newRelay(t)
				m := newTrustMap(t, r)
				data := m.data()
				tc.weaken(data)
				m.set(data)
				s := start(t, r)
				s.neverServes(t)
				if log := s.end(); !strings.Contains(log, "--front-proxy-tolerate="+tc.weakness) {
					t.Errorf("want --front-proxy-tolerate=%s in the log:\n%s", tc.weakness, log)
				}
			})
			t.Run("later", func(t *testing.T) {
				t.Parallel()
				r := newRelay(t)
				m := newTrustMap(t, r)
				s := start(t, r)
				s.waitReady(t)
				proxy := frontProxy(t)
				s.get(t, proxy, forged()).want(t, "while the trust is strong", http.StatusOK)
				strong := m.data()
				weak := m.data()
				tc.weaken(weak)
				m.set(weak)
				shared.Eventually(t, "the front proxy to be refused", envtest.WaitTimeout,
					func(context.Context) error { return s.reads(t, proxy, forged(), "") })
				if got := s.try(nil, http.MethodGet, "/readyz?verbose", nil, ""); !strings.Contains(got.body,
					"[-]front-proxy-trust failed") {
					t.Errorf("readyz: %s, want the check front-proxy-trust to fail", got)
				}
				m.set(strong)
				s.waitReady(t)
				s.get(t, proxy, forged()).want(t, "when the trust is strong again", http.StatusOK)
			})
			t.Run("tolerated", func(t *testing.T) {
				t.Parallel()
				r := newRelay(t)
				m := newTrustMap(t, r)
				data := m.data()
				tc.weaken(data)
				m.set(data)
				s := start(t, r, "--front-proxy-tolerate="+tc.weakness)
				s.waitReady(t)
				s.get(t, frontProxy(t), forged()).want(t, "the front proxy", http.StatusOK)
				if log := s.end(); !strings.Contains(log, "WARNING: accepting weak trust in the front proxy") {
					t.Errorf("want a warning in the log:\n%s", log)
				}
			})
		})
	}
}

// TestS17Audience checks that with configured audiences the server reviews tokens for these
// audiences, and rejects a token for kube-apiserver's own audience.
func TestS17Audience(t *testing.T) {
	t.Parallel()
	const ours = "https://extension.example.com"
	s := newServer(t, "--api-audiences="+ours)
	review, got := s.review(t, nil, bearer(accountToken(t, ours)))
	if review == nil || review.UserInfo.Username != account {
		t.Errorf("a token for our audience: %s, want to be %s", got, account)
	}
	for name, token := range map[string]string{"kube-apiserver's": accountToken(t),
		"another": accountToken(t, "https://elsewhere.example.com")} {
		_, got := s.review(t, nil, bearer(token))
		got.want(t, "a token for the audience: "+name, http.StatusUnauthorized)
	}
	// An authenticator that does not know audiences returns none: that does not confirm the
	// server's audience.
	s.script(tokenReviews, reply(http.StatusCreated, `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview",`+
		`"status":{"authenticated":true,"user":{"username":"boss"}}}`))
	s.get(t, nil, bearer("without-audience")).want(t, "a review without audience", http.StatusUnauthorized)
}

// TestS18TokensOff checks that bearer tokens can be disabled at the server's own port. The server
// then sends no TokenReview.
func TestS18TokensOff(t *testing.T) {
	t.Parallel()
	good := accountToken(t)
	on, off := newServer(t), newServer(t, "--authentication-bearer-tokens=false")
	if review, got := on.review(t, nil, bearer(good)); review == nil {
		t.Errorf("with tokens on: %s, want 201", got)
	}
	_, got := off.review(t, nil, bearer(good))
	got.want(t, "with tokens off", http.StatusUnauthorized)
	if reviewed := off.tokens(t); len(reviewed) != 0 {
		t.Errorf("kube-apiserver got %d TokenReviews, want none", len(reviewed))
	}
	// The other authentication methods remain.
	off.wantUser(t, frontProxy(t), http.Header{"X-Remote-User": {"ann"}}, "ann")
	off.wantUser(t, issue(t, readCA(t, "client-ca"), "alice"), nil, "alice")
}

// TestS24MastersOff checks that without --authorization-always-allow-groups, system:masters needs
// a SubjectAccessReview like any group.
func TestS24MastersOff(t *testing.T) {
	t.Parallel()
	s := newServer(t, "--authorization-always-allow-groups=")
	master := http.Header{"X-Remote-User": {"ann"}, "X-Remote-Group": {"system:masters"}}
	proxy := frontProxy(t)
	// The real kube-apiserver allows masters.
	s.get(t, proxy, master).want(t, "reviewed", http.StatusOK)
	if got := s.access(t); len(got) != 1 || got[0].User != "ann" {
		t.Errorf("SubjectAccessReviews: %+v, want one for ann", got)
	}
	s.decide(t, func(authorizationv1.SubjectAccessReviewSpec) http.HandlerFunc { return reviewStatus(`"allowed":false`) })
	s.try(proxy, http.MethodGet, protected+"/x", master, "").want(t, "refused", http.StatusForbidden)
	s.try(issue(t, readCA(t, "client-ca"), "admin", "system:masters"), http.MethodGet, protected+"/y", nil, "").want(t,
		"refused with a certificate", http.StatusForbidden)
}

// TestS21ReviewsForbidden checks that a server that may not create SubjectAccessReviews serves no
// user, and reports the missing permission.
func TestS21ReviewsForbidden(t *testing.T) {
	t.Parallel()
	r := newRelay(t)
	r.script("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", func(w http.ResponseWriter, req *http.Request) {
		body, _ := readAll(req)
		review := &authorizationv1.SelfSubjectAccessReview{}
		decode(t, body, review)
		allowed := review.Spec.ResourceAttributes.Resource != "subjectaccessreviews"
		reply(http.StatusCreated, fmt.Sprintf(`{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","status":{"allowed":%t}}`, allowed))(w, req)
	})
	s := start(t, r)
	const want = "this server lacks permissions: create subjectaccessreviews.authorization.k8s.io (for authorization)"
	shared.Eventually(t, "the log to name the permission", envtest.WaitTimeout, func(context.Context) error {
		if !strings.Contains(s.log(), want) {
			return fmt.Errorf("not in the log")
		}
		return nil
	})
	s.try(nil, http.MethodGet, "/readyz", nil, "").want(t, "readyz", http.StatusInternalServerError)
	r.script("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", nil)
	s.waitReady(t)
}

// TestS13NoResponse checks that a server that gets no more responses from kube-apiserver is live
// but not ready and reports why, and that it is ready again when responses return.
func TestS13NoResponse(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	proxy := frontProxy(t)
	s.script("/", reset)
	shared.Eventually(t, "readyz to fail", envtest.WaitTimeout, func(context.Context) error {
		// A request that cannot be authorized makes the server check.
		got := s.try(proxy, http.MethodGet, protected, http.Header{"X-Remote-User": {"ann"}}, "")
		if got.status < http.StatusInternalServerError {
			t.Fatalf("without a reviewStatus: %s, want 5xx", got)
		}
		if got := s.try(nil, http.MethodGet, "/readyz?verbose", nil, ""); !strings.Contains(got.body,
			"[-]permissions failed") {
			return fmt.Errorf("readyz: %s", got)
		}
		return nil
	})
	s.try(nil, http.MethodGet, "/livez", nil, "").want(t, "livez", http.StatusOK)
	s.script("/", nil)
	s.waitReady(t)
	s.try(issue(t, readCA(t, certs.FrontProxyCADir), certs.FrontProxyUser), http.MethodGet, protected, forged(),
		"").want(t, "afterwards", http.StatusOK)
	if log := s.log(); !strings.Contains(log, "Authorization check failed") {
		t.Errorf("the log does not say that a reviewStatus was missing:\n%s", log)
	}
}
