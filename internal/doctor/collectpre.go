// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/extension-apiserver/internal/frontproxy"
)

// installation are the permissions to install a server by its manifests.
var installation = []Permission{
	{ID: "I02", Verb: "create", Resource: "namespaces"},
	{ID: "I02", Verb: "create", Resource: "serviceaccounts"},
	{ID: "I02", Verb: "create", Resource: "services"},
	{ID: "I02", Verb: "create", Group: "apps", Resource: "deployments"},
	{ID: "I02", Verb: "create", Group: "rbac.authorization.k8s.io", Resource: "clusterroles"},
	{ID: "I02", Verb: "create", Group: "rbac.authorization.k8s.io", Resource: "clusterrolebindings"},
	{ID: "I02", Verb: "create", Group: "rbac.authorization.k8s.io", Resource: "rolebindings",
		Namespace: frontproxy.Namespace},
	{ID: "I02", Verb: "create", Group: "apiregistration.k8s.io", Resource: "apiservices"},
}

// preReads returns functions for facts that are needed only before an installation.
func (c *collector) preReads() []func(context.Context) {
	if !c.facts.Pre {
		return nil
	}
	return []func(context.Context){c.readDenied, c.readRoles}
}

// readDenied reviews the permissions of the user.
func (c *collector) readDenied(ctx context.Context) {
	for _, p := range installation {
		review, err := c.core.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx,
			&authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
				ResourceAttributes: p.attributes()}}, metav1.CreateOptions{})
		if c.failed("permissions", "create selfsubjectaccessreviews.authorization.k8s.io", err) {
			return
		}
		if !review.Status.Allowed {
			c.set(func(f *Facts) { f.Denied = append(f.Denied, p) })
		}
	}
}

// readRoles reads the roles that kube-apiserver creates for servers.
func (c *collector) readRoles(ctx context.Context) {
	rbac := c.core.RbacV1()
	for object, read := range map[string]func() error{
		"ClusterRole " + delegatorRole: func() error {
			_, err := rbac.ClusterRoles().Get(ctx, delegatorRole, metav1.GetOptions{})
			return err
		},
		"Role " + frontproxy.Namespace + "/" + readerRole: func() error {
			_, err := rbac.Roles(frontproxy.Namespace).Get(ctx, readerRole, metav1.GetOptions{})
			return err
		},
	} {
		err := read()
		if apierrors.IsNotFound(err) {
			c.set(func(f *Facts) { f.MissingRoles = append(f.MissingRoles, object) })
		} else {
			c.failed("permissions", "get the "+object, err)
		}
	}
}
