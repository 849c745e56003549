// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/pkg/apis/identity"
	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
)

// TestIdentity checks that the extension API server sees the same user as kube-apiserver, for any
// type of credentials.
func TestIdentity(t *testing.T) {
	allowReviews(t)
	user, err := shared.Config("jane", "makers", "testers")
	if err != nil {
		t.Fatal(err)
	}
	accounts := shared.Client(t).CoreV1().ServiceAccounts("default")
	if _, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	token, err := shared.Token(t.Context(), "default", "robot")
	if err != nil {
		t.Fatal(err)
	}
	account := rest.AnonymousClientConfig(shared.Admin(t))
	account.BearerToken = token
	impersonated := rest.CopyConfig(shared.Admin(t))
	impersonated.Impersonate = rest.ImpersonationConfig{
		UserName: "someone else/öäü", UID: "8aee5a4a", Groups: []string{"one", "two"},
		// The keys of extra are lower case, because HTTP headers carry them.
		Extra: map[string][]string{"example.com/scope": {"a", "b c", "d%2Fe"}, "plain": {"x"}},
	}
	for name, tc := range map[string]struct {
		config *rest.Config
		// uid requires that the user has a UID: only then does the comparison show that it
		// arrives.
		uid bool
	}{
		"client certificate":    {user, false},
		"ServiceAccount token":  {account, true},
		"impersonated identity": {impersonated, true},
	} {
		t.Run(name, func(t *testing.T) {
			client, err := kubernetes.NewForConfig(tc.config)
			if err != nil {
				t.Fatal(err)
			}
			want, err := client.AuthenticationV1().SelfSubjectReviews().Create(t.Context(),
				&authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			got := review(t, tc.config)
			sorted := cmpopts.SortSlices(func(a, b string) bool { return a < b })
			if diff := cmp.Diff(&want.Status.UserInfo, got.UserInfo, sorted); diff != "" {
				t.Errorf("identity (-kube-apiserver +our server):\n%s", diff)
			}
			if tc.uid && got.UserInfo.UID == "" {
				t.Error("the caller has no UID, so this shows nothing about UIDs")
			}
			if got.Authenticator != "RequestHeader" || got.ProxySubject != "CN=front-proxy-client" {
				t.Errorf("accepted by %s for %s, want RequestHeader for CN=front-proxy-client", got.Authenticator,
					got.ProxySubject)
			}
			proxy, err := certs.ReadCertificate(certs.Dir(shared.PKI()), certs.FrontProxyClientDir)
			if err != nil {
				t.Fatal(err)
			}
			if got.ProxyCertificateSHA256 != certs.Fingerprint(proxy) {
				t.Errorf("the front proxy's certificate has the SHA-256 %s, want %s", got.ProxyCertificateSHA256,
					certs.Fingerprint(proxy))
			}
		})
	}
}

// TestIdentityReviewStoresNothing checks that the server ignores a status that a client sends,
// and that nothing can be read.
func TestIdentityReviewStoresNothing(t *testing.T) {
	client, err := dynamic.NewForConfig(shared.Admin(t))
	if err != nil {
		t.Fatal(err)
	}
	obj := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1.SchemeGroupVersion.String(), "kind": "IdentityReview",
		"metadata": map[string]any{"name": "mine"},
		"status":   map[string]any{"authenticator": "Trick", "userInfo": map[string]any{"username": "root"}},
	}}
	created, err := client.Resource(resource("identityreviews")).Create(t.Context(), obj, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if name, _, _ := unstructured.NestedString(created.Object, "status", "userInfo", "username"); name != "admin" {
		t.Errorf("username %q, want admin", name)
	}
	if _, err := client.Resource(resource("identityreviews")).Get(t.Context(), "mine",
		metav1.GetOptions{}); err == nil {
		t.Error("get of a review succeeded; want an error, since nothing is stored")
	}
}

// allowReviews allows every authenticated user to create an IdentityReview.
func allowReviews(t *testing.T) {
	t.Helper()
	admin := shared.Client(t)
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: uniqueName(t)},
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{v1.SchemeGroupVersion.Group},
			Resources: []string{"identityreviews"}, Verbs: []string{"create"}}},
	}
	if _, err := admin.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind,
			Name: "system:authenticated"}},
	}
	if _, err := admin.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// review creates an IdentityReview as the user of the config.
func review(t *testing.T, config *rest.Config) identity.IdentityReviewStatus {
	t.Helper()
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	obj := &unstructured.Unstructured{Object: map[string]any{"apiVersion": v1.SchemeGroupVersion.String(),
		"kind": "IdentityReview"}}
	created, err := client.Resource(resource("identityreviews")).Create(t.Context(), obj, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	data, err := created.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	var identityReview identity.IdentityReview
	if err := json.Unmarshal(data, &identityReview); err != nil {
		t.Fatal(err)
	}
	return identityReview.Status
}
