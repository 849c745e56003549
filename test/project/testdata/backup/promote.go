package databaseinstance

import (
	"context"

	"k8s.io/apiserver/pkg/authorization/authorizer"

	"example.com/extension-apiserver/pkg/registry/subresource"

	v1 "git.example.org/platform/dbaas/apis/dbaas/v1"
)

// authorize requires permission for the verb promote on the database for more than three replicas.
func authorize(ctx context.Context, a authorizer.Authorizer, d, old *v1.DatabaseInstance) error {
	if d.Spec.Replicas == nil || *d.Spec.Replicas <= 3 || old != nil && old.Spec.Replicas != nil && *old.Spec.Replicas == *d.Spec.Replicas {
		return nil
	}
	return subresource.Authorize(ctx, a, authorizer.AttributesRecord{Verb: "promote", APIGroup: v1.SchemeGroupVersion.Group,
		Resource: "databaseinstances", Namespace: d.Namespace, Name: d.Name})
}
