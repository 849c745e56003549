// SPDX-License-Identifier: Apache-2.0

// Package identityreview serves the virtual kind IdentityReview. The response to a create
// contains the identity of the caller as this server authenticated it. Nothing is stored.
//
// pkg/apiserver serves the kind if an API requests it. The kind reads the Credential of the
// request from internal/authentication.
package identityreview

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"

	"example.com/extension-apiserver/internal/authentication"
	"example.com/extension-apiserver/pkg/apis/identity"
)

// NewStorage returns the storage of the resource. It uses none of its arguments.
func NewStorage(*runtime.Scheme, generic.RESTOptionsGetter, authorizer.Authorizer) (map[string]rest.Storage, error) {
	return map[string]rest.Storage{"identityreviews": &reviewREST{}}, nil
}

// reviewREST implements rest.Creater only.
type reviewREST struct{}

var _ rest.Creater = &reviewREST{}

func (*reviewREST) New() runtime.Object     { return &identity.IdentityReview{} }
func (*reviewREST) Destroy()                {}
func (*reviewREST) NamespaceScoped() bool   { return false }
func (*reviewREST) GetSingularName() string { return "identityreview" }

// Create returns the review with the caller's identity in its status. A dry run behaves the same,
// because nothing is stored.
func (*reviewREST) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc,
	_ *metav1.CreateOptions) (runtime.Object, error) {
	if validate != nil {
		if err := validate(ctx, obj.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	user, ok := genericapirequest.UserFrom(ctx)
	if !ok {
		return nil, apierrors.NewInternalError(fmt.Errorf("the request reached the storage without a user"))
	}
	credential, ok := authentication.CredentialFrom(ctx)
	if !ok {
		return nil, apierrors.NewInternalError(fmt.Errorf(
			"the request reached the storage without evidence of its identity"))
	}
	info := &authenticationv1.UserInfo{
		Username: user.GetName(),
		UID:      user.GetUID(),
		Groups:   user.GetGroups(),
	}
	for key, values := range user.GetExtra() {
		if info.Extra == nil {
			info.Extra = map[string]authenticationv1.ExtraValue{}
		}
		info.Extra[key] = values
	}
	review := obj.(*identity.IdentityReview).DeepCopy()
	review.Status = identity.IdentityReviewStatus{
		UserInfo:      info,
		Authenticator: credential.Authenticator,
		ProxySubject:  credential.ProxySubject, ProxyCertificateSHA256: credential.ProxySHA256,
	}
	return review, nil
}
