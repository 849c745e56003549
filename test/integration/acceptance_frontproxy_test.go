// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"example.com/extension-apiserver/pkg/envtest"
)

// auditPolicy records each SubjectAccessReview that kube-apiserver receives, with its content.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Request, resources: [{group: authorization.k8s.io, resources: [subjectaccessreviews]}]}
- {level: None}
`

// TestFrontProxy checks that the extension API server uses exactly the identity that
// kube-apiserver authenticated, in the request and in its SubjectAccessReview, and sends one
// review per request. The UID arrives if kube-apiserver sends it (KEP-4862:
// --requestheader-uid-headers).
func TestFrontProxy(t *testing.T) {
	t.Parallel()
	for name, header := range map[string]string{"with UID": "X-Remote-Uid", "without UID": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			policy, log := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
			if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
				t.Fatal(err)
			}
			e := envtest.New(t, envtest.Options{KubeAPIServerArgs: []string{
				"--requestheader-uid-headers=" + header, "--audit-policy-file=" + policy, "--audit-log-path=" + log,
			}})
			account, config := robot(t, e)
			client, err := kubernetes.NewForConfig(config)
			if err != nil {
				t.Fatal(err)
			}
			self, err := client.AuthenticationV1().SelfSubjectReviews().Create(t.Context(),
				&authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			credential := self.Status.UserInfo.Extra[user.CredentialIDKey]
			if len(credential) != 1 {
				t.Fatalf("kube-apiserver found the credential IDs %v in the token, want one", credential)
			}

			if _, err := gadgetCase.client(t, config, "").List(t.Context(), metav1.ListOptions{}); err != nil {
				t.Fatalf("list: %v", err)
			}
			// The second request returns the identity that the server sees. Its review in the log
			// shows that the log has all reviews of the first request.
			seen := review(t, config)

			want := authenticationv1.UserInfo{
				Username: "system:serviceaccount:" + account.Namespace + ":" + account.Name,
				Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + account.Namespace,
					"system:authenticated"},
				Extra: map[string]authenticationv1.ExtraValue{user.CredentialIDKey: credential},
			}
			if header != "" {
				want.UID = string(account.UID)
			}
			if diff := cmp.Diff(&want, seen.UserInfo); diff != "" {
				t.Errorf("identity in our server (-want +got):\n%s", diff)
			}
			var checks []authorizationv1.SubjectAccessReviewSpec
			for _, of := range [][2]string{{"list", "gadgets"}, {"create", "identityreviews"}} {
				checks = append(checks, authorizationv1.SubjectAccessReviewSpec{
					User: want.Username, UID: want.UID, Groups: want.Groups,
					Extra: map[string]authorizationv1.ExtraValue{user.CredentialIDKey: authorizationv1.ExtraValue(
						credential)},
					ResourceAttributes: &authorizationv1.ResourceAttributes{
						Group: gadgetCase.resource.Group, Version: gadgetCase.resource.Version, Verb: of[0],
						Resource: of[1],
					},
				})
			}
			e.Eventually(t, "one check for each request", envtest.WaitTimeout, func(context.Context) error {
				got, err := auditedChecks(log, want.Username)
				if diff := cmp.Diff(checks, got); err == nil && len(got) >= len(checks) && diff != "" {
					t.Fatalf("authorization checks for the user (-want +got):\n%s", diff)
				} else if diff != "" {
					return errors.Join(fmt.Errorf("%d checks, want %d", len(got), len(checks)), err)
				}
				return err
			})
		})
	}
}

// robot creates a ServiceAccount that may list gadgets and create identity reviews. It returns
// the account and a client configuration with its token.
func robot(t *testing.T, e *envtest.Environment) (*corev1.ServiceAccount, *rest.Config) {
	t.Helper()
	admin := e.Client(t)
	account, err := admin.CoreV1().ServiceAccounts(e.NewNamespace(t)).
		Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}},
			metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "robot"},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{gadgetCase.resource.Group}, Resources: []string{"gadgets"}, Verbs: []string{"list"}},
			{APIGroups: []string{gadgetCase.resource.Group}, Resources: []string{"identityreviews"},
				Verbs: []string{"create"}},
		},
	}
	if _, err := admin.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "robot"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "robot"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: account.Namespace, Name: "robot"}},
	}
	if _, err := admin.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	token, err := e.Token(t.Context(), account.Namespace, "robot")
	if err != nil {
		t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(e.Admin(t))
	config.BearerToken = token
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	// Query kube-apiserver, which would itself reject the request until it has processed the
	// binding.
	e.Eventually(t, "the permissions of the robot", envtest.WaitTimeout, func(ctx context.Context) error {
		for _, rule := range role.Rules {
			accessReview, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx,
				&authorizationv1.SelfSubjectAccessReview{
					Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
						Group: rule.APIGroups[0], Resource: rule.Resources[0], Verb: rule.Verbs[0],
					}},
				}, metav1.CreateOptions{})
			if err != nil || !accessReview.Status.Allowed {
				return errors.Join(fmt.Errorf("may not %s %s", rule.Verbs[0], rule.Resources[0]), err)
			}
		}
		return nil
	})
	return account, config
}

// auditedChecks returns the SubjectAccessReviews about a user in kube-apiserver's audit log, in
// order.
func auditedChecks(log, user string) ([]authorizationv1.SubjectAccessReviewSpec, error) {
	data, err := os.ReadFile(log)
	if err != nil {
		return nil, err
	}
	var checks []authorizationv1.SubjectAccessReviewSpec
	for line := range bytes.Lines(data) {
		var event auditv1.Event
		var review authorizationv1.SubjectAccessReview
		if err := json.Unmarshal(line, &event); err != nil {
			return nil, fmt.Errorf("an event that is not whole: %w", err)
		}
		if event.RequestObject == nil {
			return nil, fmt.Errorf("an event without the request: %s", line)
		}
		if err := json.Unmarshal(event.RequestObject.Raw, &review); err != nil {
			return nil, err
		}
		if review.Spec.User == user {
			checks = append(checks, review.Spec)
		}
	}
	return checks, nil
}
