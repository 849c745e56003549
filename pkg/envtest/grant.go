// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"context"
	"fmt"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
)

// grantTimeout is how long a kube-apiserver may take to apply a new role. It watches roles and
// usually needs less than a second.
const grantTimeout = 20 * time.Second

// Grant grants a user additional permissions in all namespaces. It returns when every
// kube-apiserver applies them, usually within a second. It returns an error if the role cannot be
// written or a rule is not applied after 20 seconds.
func (e *Environment) Grant(ctx context.Context, user string, rules ...rbacv1.PolicyRule) error {
	admin, err := e.AdminClient()
	if err != nil {
		return err
	}
	meta := metav1.ObjectMeta{GenerateName: "granted-"}
	role, err := admin.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules},
		metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("grant permissions to %s: %w", user, err)
	}
	if _, err := admin.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("grant permissions to %s: %w", user, err)
	}
	for _, k := range e.KubeAPIServers {
		config, err := e.adminOf(k)
		if err != nil {
			return err
		}
		client, err := authorizationv1client.NewForConfig(config)
		if err != nil {
			return err
		}
		if err := eventually(ctx, "the permissions of "+user, grantTimeout,
			func(ctx context.Context) error { return allowed(ctx, client, user, rules) }); err != nil {
			return err
		}
	}
	return nil
}

// allowed checks the first permission of each rule, because a role takes effect as a whole.
func allowed(ctx context.Context, client authorizationv1client.SubjectAccessReviewsGetter, user string,
	rules []rbacv1.PolicyRule) error {
	first := func(values []string) string { return strings.Join(values[:min(1, len(values))], "") }
	for _, rule := range rules {
		spec := authorizationv1.SubjectAccessReviewSpec{User: user}
		if len(rule.NonResourceURLs) > 0 {
			spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Verb: first(rule.Verbs),
				Path: first(rule.NonResourceURLs)}
		} else {
			resource, subresource, _ := strings.Cut(first(rule.Resources), "/")
			spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
				Verb: first(rule.Verbs), Group: first(rule.APIGroups), Resource: resource, Subresource: subresource,
				Name: first(rule.ResourceNames),
			}
		}
		review, err := client.SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: spec},
			metav1.CreateOptions{})
		if err != nil {
			return err
		}
		if !review.Status.Allowed {
			return fmt.Errorf("it has no permission for %v", rule)
		}
	}
	return nil
}
