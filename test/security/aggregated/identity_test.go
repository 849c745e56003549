// SPDX-License-Identifier: Apache-2.0

package aggregated

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/pkg/apis/identity"
	"example.com/extension-apiserver/pkg/envtest"
	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
)

const (
	selfReviews = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
	selfReview  = `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`
	reviews     = "/identityreviews"
)

// anybody lets every authenticated user create reviews, which is all that the identity tests need.
func anybody(t *testing.T) {
	t.Helper()
	allow(t, shared, ofGroup(user.AllAuthenticated), "", rbacv1.PolicyRule{
		APIGroups: []string{group}, Resources: []string{"identityreviews"}, Verbs: []string{"create"},
	})
}

// seen returns the identity in an IdentityReview.
func seen(t *testing.T, answer []byte) identity.IdentityReviewStatus {
	t.Helper()
	var review identity.IdentityReview
	if err := json.Unmarshal(answer, &review); err != nil || review.Status.UserInfo == nil {
		t.Fatalf("no identity (%v) in %s", err, answer)
	}
	return review.Status
}

// sameIdentity compares the identity that the server saw, and that of its SubjectAccessReview,
// with kube-apiserver's SelfSubjectReview.
func sameIdentity(t *testing.T, said, saw []byte) authenticationv1.UserInfo {
	t.Helper()
	want, got := selfInfo(t, said), seen(t, saw)
	if diff := cmp.Diff(&want, got.UserInfo); diff != "" {
		t.Errorf("identity (-kube-apiserver +our server):\n%s", diff)
	}
	if got.Authenticator != "RequestHeader" || got.ProxySubject != "CN="+certs.FrontProxyUser {
		t.Errorf("accepted by %s for %s, want RequestHeader for the front proxy", got.Authenticator, got.ProxySubject)
	}
	reviewed := authorizationv1.SubjectAccessReviewSpec{User: want.Username, UID: want.UID, Groups: want.Groups}
	for key, values := range want.Extra {
		if reviewed.Extra == nil {
			reviewed.Extra = map[string]authorizationv1.ExtraValue{}
		}
		reviewed.Extra[key] = authorizationv1.ExtraValue(values)
	}
	reviewed.ResourceAttributes = resourceCheck(v1.SchemeGroupVersion, "create", "identityreviews", "", "",
		"").ResourceAttributes
	// One review, of the user itself: a header Impersonate-* that arrived would cause another,
	// with the verb impersonate.
	all := specs(logs.checks(t, shared)[want.Username])
	if diff := cmp.Diff(one(reviewed), all); diff != "" {
		t.Errorf("authorization checks (-want +got):\n%s", diff)
	}
	return want
}

// TestS06S09S20Identity checks that user, UID, groups and extra arrive as kube-apiserver knows
// them, for all kinds of credentials. No impersonation header arrives: with it the server would
// decide what kube-apiserver has already decided.
func TestS06S09S20Identity(t *testing.T) {
	anybody(t)
	tokens := accountConfig(t, shared)
	certificate := func(name string, groups ...string) *rest.Config {
		config, err := shared.Config(name, groups...)
		if err != nil {
			t.Fatal(err)
		}
		return config
	}
	impersonated := func(who rest.ImpersonationConfig) *rest.Config {
		config := rest.CopyConfig(shared.Admin(t))
		config.Impersonate = who
		return config
	}
	many := make([]string, 100)
	for i := range many {
		many[i] = strings.Repeat("v", i+1)
	}
	for name, tc := range map[string]struct {
		config *rest.Config
		uid    bool
		extra  int
	}{
		"client certificate":          {certificate(unique("jane"), "makers", "testers of ö"), false, 1},
		"client certificate, unicode": {certificate(unique("jürgen/öps@例え"), "グループ"), false, 1},
		"ServiceAccount token":        {tokens, true, 1},
		"impersonation, name only":    {impersonated(rest.ImpersonationConfig{UserName: unique("bob")}), false, 0},
		"impersonation, all of it": {impersonated(rest.ImpersonationConfig{
			UserName: unique("someone else/öäü%41"), UID: "8aee5a4a-ö/%",
			Groups: []string{"one", "two, three", "four%2f", "ünf"},
			Extra: map[string][]string{
				"example.com/scope": {"a", "b c", "d%2Fe", "a", "ö例", "x,y"}, "plain": {"x"}, "per%cent": {"y"},
				"with space": {"z"}, "ö": {"u"}, "many": many,
			},
		}), true, 6},
		"impersonated ServiceAccount": {impersonated(
			rest.ImpersonationConfig{UserName: "system:serviceaccount:nowhere:" + unique("robot")}), false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			server := newEndpoint(t, tc.config)
			said := server.Must(t, http.MethodPost, selfReviews, nil, []byte(selfReview))
			saw := server.Must(t, http.MethodPost, current+reviews, nil, reviewJSON)
			who := sameIdentity(t, said.Body, saw.Body)
			if tc.uid != (who.UID != "") || len(who.Extra) < tc.extra {
				t.Errorf("the caller is %+v; want one with a UID: %t, with extra: %d, or this shows less than it should", who, tc.uid, tc.extra)
			}
		})
	}
}

// TestS20Kubectl checks the same with the impersonation flags of kubectl.
func TestS20Kubectl(t *testing.T) {
	anybody(t)
	as := []string{"--as=" + unique("bob"), "--as-group=one", "--as-group=two", "--as-uid=77",
		"--as-user-extra=example.com/scope=a", "--as-user-extra=example.com/scope=b c"}
	run := func(stdin string, args ...string) []byte {
		out, stderr, err := envtest.Kubectl{Stdin: stdin}.Run(t.Context(), shared, append(slices.Clone(as), args...)...)
		if err != nil {
			t.Fatalf("kubectl %v: %v: %s", args, err, stderr)
		}
		return []byte(out)
	}
	said := run("", "auth", "whoami", "-o", "json")
	// Validation would read CustomResourceDefinitions, for which this user has no permission.
	who := sameIdentity(t, said, run(string(reviewJSON), "create", "--validate=false", "-f", "-", "-o", "json"))
	want := authenticationv1.UserInfo{
		Username: strings.TrimPrefix(as[0], "--as="), UID: "77", Groups: []string{"one", "two", user.AllAuthenticated},
		Extra: map[string]authenticationv1.ExtraValue{"example.com/scope": {"a", "b c"}},
	}
	if diff := cmp.Diff(want, who); diff != "" {
		t.Errorf("identity (-want +got):\n%s", diff)
	}
}

// TestS06ExtraKeys checks that the values of one extra key never become those of another. Header
// names are case-insensitive, so a key of extra arrives in lower case; kube-apiserver's
// documentation requires such keys.
func TestS06ExtraKeys(t *testing.T) {
	anybody(t)
	who := &user.DefaultInfo{Name: unique("mixed")}
	saw := through(t, shared, who).Must(t, http.MethodPost, current+reviews, http.Header{
		"Impersonate-Extra-Scope": {"a"}, "Impersonate-Extra-SCOPE-Two": {"b"},
		"Impersonate-Extra-Example.com%2Fthree": {"c"},
	}, reviewJSON)
	want := map[string]authenticationv1.ExtraValue{"scope": {"a"}, "scope-two": {"b"}, "example.com/three": {"c"}}
	if diff := cmp.Diff(want, seen(t, saw.Body).UserInfo.Extra); diff != "" {
		t.Errorf("extra (-want +got):\n%s", diff)
	}
}

// accountConfig creates a ServiceAccount and returns a client configuration with its token.
func accountConfig(t *testing.T, e *envtest.Environment) *rest.Config {
	t.Helper()
	account, err := e.Client(t).CoreV1().ServiceAccounts(e.NewNamespace(t)).
		Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}},
			metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	token, err := e.Token(t.Context(), account.Namespace, account.Name)
	if err != nil {
		t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(e.Admin(t))
	config.BearerToken = token
	return config
}
