// SPDX-License-Identifier: Apache-2.0

package subresource

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// connect returns the context of a WebSocket to gadgets/console, which is a GET.
func connect(t *testing.T) context.Context {
	t.Helper()
	ctx := genericapirequest.WithUser(t.Context(), &user.DefaultInfo{Name: "jane"})
	return genericapirequest.WithRequestInfo(ctx, &genericapirequest.RequestInfo{
		IsResourceRequest: true, Path: "/apis/g/v1/namespaces/demo/gadgets/g/console", Verb: "get", APIGroup: group,
		APIVersion: "v1",
		Namespace:  "demo", Resource: "gadgets", Subresource: "console", Name: "g",
	})
}

// answering returns an authorizer that always returns the same decision and appends its
// attributes to asked.
func answering(decision authorizer.Decision, reason string, err error,
	asked *[]authorizer.Attributes) authorizer.Authorizer {
	return authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision,
		string, error) {
		*asked = append(*asked, a)
		return decision, reason, err
	})
}

// TestEnsureAuthorized: every decision except allow without an error is rejected.
func TestEnsureAuthorized(t *testing.T) {
	forbidden := func(resource, verb string) string {
		return fmt.Sprintf(`gadgets.%s "g" is forbidden: User "jane" cannot %s resource %q in API group %q in the namespace "demo"`, group, verb, resource, group)
	}
	const failed = "Internal error occurred: authorization check failed: no route to host"
	for _, tc := range []struct {
		name, verb, subresource string
		decision                authorizer.Decision
		reason                  string
		err                     error
		// code and want are the status code and the message that the client receives.
		code int32
		want string
	}{
		{"allowed", "create", "console", authorizer.DecisionAllow, "", nil, 0, ""},
		{"denied", "create", "console", authorizer.DecisionDeny, "", nil, 403, forbidden("gadgets/console", "create")},
		{"denied, with a reason", "create", "console", authorizer.DecisionDeny, "not on a Sunday", nil, 403,
			forbidden("gadgets/console", "create") + ": not on a Sunday"},
		{"no opinion", "create", "console", authorizer.DecisionNoOpinion, "", nil, 403,
			forbidden("gadgets/console", "create")},
		{"the object itself", "get", "", authorizer.DecisionNoOpinion, "", nil, 403, forbidden("gadgets", "get")},
		// The request was authorized for this, but the permission may have been revoked since.
		{"the permission of the request", "get", "console", authorizer.DecisionDeny, "", nil, 403,
			forbidden("gadgets/console", "get")},
		{"error", "create", "console", authorizer.DecisionNoOpinion, "", errors.New("no route to host"), 500, failed},
		{"allowed, with an error", "create", "console", authorizer.DecisionAllow, "",
			errors.New("no route to host"), 500, failed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var asked []authorizer.Attributes
			err := EnsureAuthorized(connect(t), answering(tc.decision, tc.reason, tc.err, &asked), tc.verb,
				tc.subresource)
			code, message := responseOf(t, err)
			if code != tc.code || message != tc.want {
				t.Errorf("got %d %q, want %d %q", code, message, tc.code, tc.want)
			}
			if len(asked) != 1 {
				t.Errorf("the authorizer was asked %d times, want once", len(asked))
			}
		})
	}
}

// responseOf returns the code and the message of the response, or 0 if there is no error.
func responseOf(t *testing.T, err error) (int32, string) {
	t.Helper()
	if err == nil {
		return 0, ""
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		t.Fatalf("got the error %v, want an API status", err)
	}
	return status.Status().Code, status.Status().Message
}

// TestEnsureAuthorizedAttributes: the authorizer receives the object of the request with the given
// verb and subresource.
func TestEnsureAuthorizedAttributes(t *testing.T) {
	for _, tc := range []struct {
		verb, subresource string
		readOnly          bool
	}{{"create", "console", false}, {"get", "", true}} {
		t.Run(tc.verb+" "+tc.subresource, func(t *testing.T) {
			var asked []authorizer.Attributes
			err := EnsureAuthorized(connect(t), answering(authorizer.DecisionAllow, "", nil, &asked), tc.verb,
				tc.subresource)
			if err != nil || len(asked) != 1 {
				t.Fatalf("got error %v and %d questions, want one question", err, len(asked))
			}
			a := asked[0]
			got := []string{a.GetUser().GetName(), a.GetVerb(), a.GetAPIGroup(), a.GetAPIVersion(), a.GetNamespace(),
				a.GetResource(), a.GetSubresource(), a.GetName()}
			if want := []string{"jane", tc.verb, group, "v1", "demo", "gadgets", tc.subresource,
				"g"}; !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
			if !a.IsResourceRequest() || a.IsReadOnly() != tc.readOnly {
				t.Errorf("got for a resource: %t, read-only: %t, want true and %t", a.IsResourceRequest(),
					a.IsReadOnly(), tc.readOnly)
			}
		})
	}
}

// TestEnsureAuthorizedFailsClosed: without an authorizer or a resource request, EnsureAuthorized
// returns an internal error and does not panic.
func TestEnsureAuthorizedFailsClosed(t *testing.T) {
	var asked []authorizer.Attributes
	yes := answering(authorizer.DecisionAllow, "", nil, &asked)
	for _, tc := range []struct {
		name string
		ctx  context.Context
		a    authorizer.Authorizer
	}{
		{"no authorizer", connect(t), nil},
		{"no request", t.Context(), yes},
		{"not of a resource", genericapirequest.WithRequestInfo(t.Context(),
			&genericapirequest.RequestInfo{Path: "/healthz", Verb: "get"}), yes},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := EnsureAuthorized(tc.ctx, tc.a, "create", "console")
			if got := apierrors.ReasonForError(err); err == nil || got != metav1.StatusReasonInternalError {
				t.Errorf("got error %v (%s), want an internal error", err, got)
			}
		})
	}
	if len(asked) != 0 {
		t.Errorf("the authorizer was asked %d times, want none", len(asked))
	}
}
