// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/authorization/path"
	"k8s.io/apiserver/pkg/authorization/union"
	"k8s.io/klog/v2"

	"example.com/extension-apiserver/internal/fairness"
	"example.com/extension-apiserver/internal/filters"
)

// delegated is the name that k8s.io/apiserver gives the authorizer that asks kube-apiserver.
const delegated = "kubernetes.io/webhook"

const (
	// userReviews is how many SubjectAccessReviews of one user kube-apiserver is asked at a time. The
	// library sends 200 a second, in the order of the requests: 10 of them delay others by 50 ms.
	userReviews = 10
	// userReviewsWaiting is how many more of them may wait. It is the number of requests that the
	// server executes at a time by default, so it does not refuse what priority and fairness admits.
	userReviewsWaiting = 600
	// maxSelectors is the number of bytes that the selectors of a request may have in a SubjectAccessReview. The library writes "a," as 32
	// bytes there, and keeps a review for each decision in its cache.
	maxSelectors = 1 << 10
)

// newReviewer returns the library's authorizer, with a client of ours: cancelled requests exhaust the rate limit of the library's.
func (o *Options) newReviewer() (authorizer.Authorizer, error) {
	options := o.Recommended.Authorization
	client, err := newClient(options.RemoteKubeConfigFile, options.ClientTimeout)
	if err != nil {
		return nil, err
	}
	return authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: client.AuthorizationV1(), AllowCacheTTL: options.AllowCacheTTL,
		DenyCacheTTL: options.DenyCacheTTL, WebhookRetryBackoff: options.WebhookRetryBackoff,
	}.New()
}

// newAuthorizer asks next, the library's authorizer, but about what is always allowed.
func (o *Options) newAuthorizer(next authorizer.Authorizer, unanswered func()) (authorizer.Authorizer, error) {
	paths, err := path.NewAuthorizer(o.Recommended.Authorization.AlwaysAllowPaths)
	if err != nil {
		return nil, fmt.Errorf("--authorization-always-allow-paths: %w", err)
	}
	groups := authorizerfactory.NewPrivilegedGroups(o.Recommended.Authorization.AlwaysAllowGroups...)
	// The names are those of k8s.io/apiserver. They precede the reason in a 403.
	return union.New(
		union.NamedAuthorizer{AuthorizerName: "kubernetes.io/always-allow-groups", Authorizer: groups},
		union.NamedAuthorizer{AuthorizerName: "kubernetes.io/always-allow-paths", Authorizer: paths},
		union.NamedAuthorizer{AuthorizerName: delegated, Authorizer: newDelegatedAuthorizer(next, unanswered)},
	)
}

// delegatedAuthorizer asks kube-apiserver. Who asks for many things at once waits for its own
// questions and does not make other users wait: impersonation is authorized before priority and
// fairness, and a user who asks for a new name each time is never answered from the cache.
type delegatedAuthorizer struct {
	next authorizer.UnconditionalAuthorizer
	// unanswered is called when kube-apiserver did not answer.
	unanswered func()
	places     *fairness.Places
}

func newDelegatedAuthorizer(next authorizer.UnconditionalAuthorizer, unanswered func()) *delegatedAuthorizer {
	return &delegatedAuthorizer{next, unanswered, fairness.New(fairness.Limits{PerKey: userReviews, Queued: userReviewsWaiting})}
}

// ConditionsAwareAuthorize implements authorizer.Authorizer. It returns the decision of Authorize: conditions are not supported.
func (d *delegatedAuthorizer) ConditionsAwareAuthorize(ctx context.Context, a authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecisionFromParts(d.Authorize(ctx, a))
}

// EvaluateConditions implements authorizer.Authorizer. It always denies.
func (*delegatedAuthorizer) EvaluateConditions(
	context.Context, authorizer.ConditionsAwareDecision, authorizer.ConditionsData,
) (authorizer.Decision, string, error) {
	return authorizer.DecisionDeny, "", authorizer.ErrorConditionEvaluationNotSupported
}

// errUnauthorizable is what a caller reads. The cause is in the log: it has kube-apiserver's address.
var errUnauthorizable = errors.New("authorization check failed: kube-apiserver did not answer; try again, the log of this server has the cause")

// Authorize implements authorizer.Authorizer.
func (d *delegatedAuthorizer) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	release, err := d.places.Take(ctx, a.GetUser().GetName())
	if err != nil {
		if errors.Is(err, fairness.ErrFull) {
			filters.SetStatusError(ctx, apierrors.NewTooManyRequests(fmt.Sprintf("%d questions about the rights of the user are open", userReviews+userReviewsWaiting), 1))
		}
		return authorizer.DecisionNoOpinion, "", err
	}
	defer release()
	a = withShortSelectors(a)
	decision, reason, err := d.next.Authorize(ctx, a)
	// next is a union too, and newAuthorizer's union adds the name again.
	reason = strings.TrimPrefix(reason, delegated+": ")
	if err != nil {
		// A request that was cancelled says nothing about kube-apiserver.
		if ctx.Err() == nil {
			d.unanswered()
		}
		klog.FromContext(ctx).Error(err, "Authorization check failed", "user", a.GetUser().GetName(), "verb", a.GetVerb(), "path", a.GetPath())
		return authorizer.DecisionNoOpinion, "", errUnauthorizable
	}
	if decision == authorizer.DecisionAllow {
		filters.RecordAllowed(ctx, a)
	}
	return decision, reason, nil
}

// withShortSelectors returns the attributes without their selectors if these are long. A selector narrows what is asked for, so the request
// then needs the right to all objects.
func withShortSelectors(a authorizer.Attributes) authorizer.Attributes {
	const perRequirement = len(`{"key":"","operator":"DoesNotExist","values":[]},`)
	size := 0
	fieldSelector, _ := a.GetFieldSelector()
	for _, r := range fieldSelector {
		size += perRequirement + len(r.Field) + len(r.Value)
	}
	labelSelector, _ := a.GetLabelSelector()
	for _, r := range labelSelector {
		size += perRequirement + len(r.Key())
		for _, value := range r.ValuesUnsorted() {
			size += len(`"",`) + len(value)
		}
	}
	if size <= maxSelectors {
		return a
	}
	// A watch keeps them for its life.
	return authorizer.AttributesRecord{
		User: a.GetUser(), Verb: a.GetVerb(), Namespace: a.GetNamespace(), APIGroup: a.GetAPIGroup(), APIVersion: a.GetAPIVersion(),
		Resource: a.GetResource(), Subresource: a.GetSubresource(), Name: a.GetName(), ResourceRequest: a.IsResourceRequest(), Path: a.GetPath(),
	}
}
