// SPDX-License-Identifier: Apache-2.0

package subresource

import (
	"context"
	"errors"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// connect is the context of a WebSocket to gadgets/console: a GET.
func connect(t *testing.T) context.Context {
	t.Helper()
	ctx := genericapirequest.WithUser(t.Context(), &user.DefaultInfo{Name: "jane"})
	return genericapirequest.WithRequestInfo(ctx, &genericapirequest.RequestInfo{
		IsResourceRequest: true, Path: "/apis/g/v1/namespaces/demo/gadgets/g/console", Verb: "get", APIGroup: group, APIVersion: "v1",
		Namespace: "demo", Resource: "gadgets", Subresource: "console", Name: "g",
	})
}

// answering returns an authorizer that always answers the same; asked is what it was asked.
func answering(decision authorizer.Decision, reason string, err error, asked *[]authorizer.Attributes) authorizer.Authorizer {
	return authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		*asked = append(*asked, a)
		return decision, reason, err
	})
}

// TestEnsureAuthorized: only a clear yes is a yes.
func TestEnsureAuthorized(t *testing.T) {
	const forbidden = "gadgets/console." + group + ` "g" is forbidden: the verb create is needed beside get`
	for _, tc := range []struct {
		name     string
		verb     string
		decision authorizer.Decision
		reason   string
		err      error
		// code and want are what the client gets, asked says whether the authorizer has a say.
		code  int32
		want  string
		asked bool
	}{
		{"verb of the request, authorized before", "get", authorizer.DecisionDeny, "", nil, 0, "", false},
		{"allowed", "create", authorizer.DecisionAllow, "", nil, 0, "", true},
		{"denied", "create", authorizer.DecisionDeny, "", nil, 403, forbidden, true},
		{"denied, with a reason", "create", authorizer.DecisionDeny, "not on a Sunday", nil, 403, forbidden + ": not on a Sunday", true},
		{"no opinion", "create", authorizer.DecisionNoOpinion, "", nil, 403, forbidden, true},
		{"error", "create", authorizer.DecisionNoOpinion, "", errors.New("no route to host"), 500,
			"Internal error occurred: ask for the right to create: no route to host", true},
		// An authorizer that goes wrong is not believed.
		{"allowed, with an error", "create", authorizer.DecisionAllow, "", errors.New("no route to host"), 500,
			"Internal error occurred: ask for the right to create: no route to host", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var asked []authorizer.Attributes
			err := EnsureAuthorized(connect(t), answering(tc.decision, tc.reason, tc.err, &asked), tc.verb)
			code, message := answer(t, err)
			if code != tc.code || message != tc.want {
				t.Errorf("got %d %q, want %d %q", code, message, tc.code, tc.want)
			}
			if (len(asked) > 0) != tc.asked {
				t.Errorf("the authorizer was asked %d times, want it asked: %t", len(asked), tc.asked)
			}
		})
	}
}

// answer returns the code and the message that the client gets, 0 for none.
func answer(t *testing.T, err error) (int32, string) {
	t.Helper()
	if err == nil {
		return 0, ""
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		t.Fatalf("got the error %v, want one that is an answer", err)
	}
	return status.Status().Code, status.Status().Message
}

// TestEnsureAuthorizedQuestion: the question is that of the request, with the other verb.
func TestEnsureAuthorizedQuestion(t *testing.T) {
	var asked []authorizer.Attributes
	if err := EnsureAuthorized(connect(t), answering(authorizer.DecisionAllow, "", nil, &asked), "create"); err != nil || len(asked) != 1 {
		t.Fatalf("got error %v and %d questions, want one question", err, len(asked))
	}
	a := asked[0]
	got := []string{a.GetUser().GetName(), a.GetVerb(), a.GetAPIGroup(), a.GetAPIVersion(), a.GetNamespace(), a.GetResource(), a.GetSubresource(), a.GetName()}
	if want := []string{"jane", "create", group, "v1", "demo", "gadgets", "console", "g"}; !slices.Equal(got, want) || !a.IsResourceRequest() {
		t.Errorf("got %q, of a resource %t, want %q, of a resource", got, a.IsResourceRequest(), want)
	}
}

// TestEnsureAuthorizedFailsClosed: who cannot be asked, or about what, is no yes, and no panic.
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
		{"not of a resource", genericapirequest.WithRequestInfo(t.Context(), &genericapirequest.RequestInfo{Path: "/healthz", Verb: "get"}), yes},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := EnsureAuthorized(tc.ctx, tc.a, "create")
			if got := apierrors.ReasonForError(err); err == nil || got != metav1.StatusReasonInternalError {
				t.Errorf("got error %v (%s), want an internal error", err, got)
			}
		})
	}
	if len(asked) != 0 {
		t.Errorf("the authorizer was asked %d times, want none", len(asked))
	}
}
