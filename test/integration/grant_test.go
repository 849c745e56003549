// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"example.com/extension-apiserver/pkg/envtest"
)

// userWith makes a user who may do the first that the rule names, and nothing else, for the time of the test. It returns
// when kube-apiserver knows of it: our server would remember a refusal for 10 s.
func userWith(t *testing.T, e *envtest.Environment, user string, rule rbacv1.PolicyRule) *rest.Config {
	t.Helper()
	name := metav1.ObjectMeta{Name: uniqueName(t)}
	roles, bindings := adminClient(t, e).RbacV1().ClusterRoles(), adminClient(t, e).RbacV1().ClusterRoleBindings()
	if _, err := roles.Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: name, Rules: []rbacv1.PolicyRule{rule}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := bindings.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: name,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if err := bindings.Delete(ctx, name.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		if err := roles.Delete(ctx, name.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	config, err := e.Config(user)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	asked := authorizationv1.SelfSubjectAccessReviewSpec{}
	if len(rule.NonResourceURLs) > 0 {
		asked.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Verb: rule.Verbs[0], Path: rule.NonResourceURLs[0]}
	} else {
		asked.ResourceAttributes = &authorizationv1.ResourceAttributes{Verb: rule.Verbs[0], Group: rule.APIGroups[0], Resource: rule.Resources[0]}
	}
	e.Eventually(t, "the rights of "+user, patience, func(ctx context.Context) error {
		review, err := client.AuthorizationV1().SelfSubjectAccessReviews().
			Create(ctx, &authorizationv1.SelfSubjectAccessReview{Spec: asked}, metav1.CreateOptions{})
		if err == nil && !review.Status.Allowed {
			err = fmt.Errorf("not allowed: %s", review.Status.Reason)
		}
		return err
	})
	return config
}
