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

// EnsureAuthorized returns 403 Forbidden unless the caller may do the verb on a subresource of the
// object that the request is about, or on the object itself if the subresource is "". A WebSocket
// begins with a GET, which is authorized as get: without this check, the right to read is the right
// to act (https://issues.k8s.io/133515). It asks each time it is called, also for what the request
// was authorized for: a session can outlive the right.
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

// Authorize returns 403 Forbidden unless the caller of the request may do the verb on a resource, also on one that is
// not in the URL: a Secret that the object refers to, or the object itself with a verb of its own, such as promote. The
// user of the attributes is set to the caller. A client of the server's own never asks what the caller may: call this
// before it acts for the caller.
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
