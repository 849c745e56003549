// SPDX-License-Identifier: Apache-2.0

package subresource

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// EnsureAuthorized returns 403 Forbidden unless the caller may use the verb on a subresource of
// the requested object, or on the object itself if subresource is "". A WebSocket begins with a
// GET, which is authorized as get. Without this check, the permission to read would include the
// permission to act (https://issues.k8s.io/133515). Each call authorizes again, even for the verb
// of the request, because a session can outlive the permission.
func EnsureAuthorized(ctx context.Context, a authorizer.Authorizer, verb, subresource string) error {
	attributes, err := filters.GetAuthorizerAttributes(ctx)
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("attributes of the request: %w", err))
	}
	if !attributes.IsResourceRequest() {
		return apierrors.NewInternalError(errors.New("authorization check failed: the request is not for a resource"))
	}
	return Authorize(ctx, a, authorizer.AttributesRecord{
		Verb:     verb,
		APIGroup: attributes.GetAPIGroup(), APIVersion: attributes.GetAPIVersion(),
		Namespace: attributes.GetNamespace(),
		Resource:  attributes.GetResource(), Subresource: subresource, Name: attributes.GetName(),
	})
}

// Authorize returns 403 Forbidden unless the caller of the request may use the verb on a
// resource. The resource need not be in the URL: it can be a Secret that the object refers to, or
// the object itself with a custom verb such as promote. Authorize sets the user of the attributes
// to the caller. The server's own clients act with the server's permissions, so call Authorize
// before using one for the caller.
func Authorize(ctx context.Context, a authorizer.Authorizer, wanted authorizer.AttributesRecord) error {
	caller, ok := genericapirequest.UserFrom(ctx)
	if !ok {
		return apierrors.NewInternalError(errors.New("authorization check failed: the request has no user"))
	}
	if a == nil {
		return apierrors.NewInternalError(errors.New("authorization check failed: there is no authorizer"))
	}
	wanted.User, wanted.ResourceRequest = caller, true
	decision, reason, err := a.Authorize(ctx, wanted)
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("authorization check failed: %w", err))
	}
	if decision == authorizer.DecisionAllow {
		return nil
	}
	return responsewriters.ForbiddenStatusError(wanted, reason)
}
