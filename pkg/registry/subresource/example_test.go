// SPDX-License-Identifier: Apache-2.0

package subresource_test

import (
	"context"
	"fmt"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"

	"example.com/extension-apiserver/pkg/registry/subresource"
)

// A WebSocket begins with a GET, which is authorized as get; what it opens takes the right to create it.
func ExampleEnsureAuthorized() {
	readOnly := authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if a.IsReadOnly() {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "", nil
	})
	ctx := genericapirequest.WithUser(context.Background(), &user.DefaultInfo{Name: "jane"})
	ctx = genericapirequest.WithRequestInfo(ctx, &genericapirequest.RequestInfo{
		IsResourceRequest: true, Verb: "get", APIGroup: "fixture.example.com", APIVersion: "v1", Resource: "items", Subresource: "console", Name: "ruler",
	})
	fmt.Println(subresource.EnsureAuthorized(ctx, readOnly, "create", "console"))
	// Output: items.fixture.example.com "ruler" is forbidden: User "jane" cannot create resource "items/console" in API group "fixture.example.com" at the cluster scope
}
