// SPDX-License-Identifier: Apache-2.0

package subresource

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// EnsureAuthorized asks whether the caller may do the verb on what the request is about, and returns 403 if not. A WebSocket
// begins with a GET, which is authorized as get: without this, the right to read is the right to act
// (https://issues.k8s.io/133515).
func EnsureAuthorized(ctx context.Context, a authorizer.Authorizer, verb string) error {
	attributes, err := filters.GetAuthorizerAttributes(ctx)
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("attributes of the request: %w", err))
	}
	if attributes.GetVerb() == verb {
		return nil
	}
	if info, ok := genericapirequest.RequestInfoFrom(ctx); !ok || !info.IsResourceRequest {
		return apierrors.NewInternalError(errors.New("not the request of a resource"))
	}
	if a == nil {
		return apierrors.NewInternalError(fmt.Errorf("ask for the right to %s: there is no authorizer", verb))
	}
	decision, reason, err := a.Authorize(ctx, withVerb{attributes, verb})
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("ask for the right to %s: %w", verb, err))
	}
	if decision == authorizer.DecisionAllow {
		return nil
	}
	resource := schema.GroupResource{Group: attributes.GetAPIGroup(), Resource: attributes.GetResource() + "/" + attributes.GetSubresource()}
	problem := fmt.Errorf("the verb %s is needed beside %s", verb, attributes.GetVerb())
	if reason != "" {
		problem = fmt.Errorf("%w: %s", problem, reason)
	}
	return apierrors.NewForbidden(resource, attributes.GetName(), problem)
}

type withVerb struct {
	authorizer.Attributes
	verb string
}

func (v withVerb) GetVerb() string { return v.verb }
