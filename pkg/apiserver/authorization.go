// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"encoding/json"
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

// delegated is the name that k8s.io/apiserver gives the authorizer that sends
// SubjectAccessReviews.
const delegated = "kubernetes.io/webhook"

const (
	// userReviews is the maximum number of concurrent SubjectAccessReviews per user. The client
	// sends 200 per second in the order of the requests, so 10 of them delay those of other users
	// by 50 ms.
	userReviews = 10
	// userReviewsWaiting is the maximum number of queued SubjectAccessReviews per user. It is the
	// default number of concurrent requests of a server, so it rejects no request that API
	// Priority and Fairness admits.
	userReviewsWaiting = 600
	// maxSelectors is the maximum size of the selectors in a SubjectAccessReview, in bytes. The
	// library encodes "a," as 32 bytes and caches a review for each decision.
	maxSelectors = 1 << 10
	// maxCached is the maximum size in bytes of the user and the attributes of a decision in the
	// library's cache, as JSON. The cache has 8,192 decisions, with their reviews. The library does not
	// cache a decision about attributes of 10,000 bytes as text.
	maxCached = 10_000
)

// newReviewer returns the library's authorizer with the server's own client, because cancelled
// requests exhaust the rate limit of the library's client.
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

// newAuthorizer returns an authorizer that allows the always-allowed groups and paths, and
// delegates other requests to next, the library's authorizer. It calls unanswered if next fails.
func (o *Options) newAuthorizer(next authorizer.Authorizer, unanswered func()) (authorizer.Authorizer, error) {
	paths, err := path.NewAuthorizer(o.Recommended.Authorization.AlwaysAllowPaths)
	if err != nil {
		return nil, fmt.Errorf("--authorization-always-allow-paths: %w", err)
	}
	groups := authorizerfactory.NewPrivilegedGroups(o.Recommended.Authorization.AlwaysAllowGroups...)
	// The names are those that k8s.io/apiserver uses. They precede the reason in a 403.
	return union.New(
		union.NamedAuthorizer{AuthorizerName: "kubernetes.io/always-allow-groups", Authorizer: groups},
		union.NamedAuthorizer{AuthorizerName: "kubernetes.io/always-allow-paths", Authorizer: paths},
		union.NamedAuthorizer{AuthorizerName: delegated, Authorizer: newDelegatedAuthorizer(next, unanswered)},
	)
}

// delegatedAuthorizer sends SubjectAccessReviews with a limit per user. Without the limit, one
// user could delay the reviews of all users: impersonation is authorized before API Priority and
// Fairness, and requests for different names are not in the cache.
type delegatedAuthorizer struct {
	next authorizer.UnconditionalAuthorizer
	// unanswered is called when kube-apiserver did not respond.
	unanswered func()
	places     *fairness.Slots
}

func newDelegatedAuthorizer(next authorizer.UnconditionalAuthorizer, unanswered func()) *delegatedAuthorizer {
	return &delegatedAuthorizer{next, unanswered, fairness.New(
		fairness.Limits{PerKey: userReviews, Queued: userReviewsWaiting})}
}

// ConditionsAwareAuthorize implements authorizer.Authorizer. It returns the decision of
// Authorize, because conditions are not supported.
func (d *delegatedAuthorizer) ConditionsAwareAuthorize(ctx context.Context,
	a authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecisionFromParts(d.Authorize(ctx, a))
}

// EvaluateConditions implements authorizer.Authorizer. It always denies.
func (*delegatedAuthorizer) EvaluateConditions(
	context.Context, authorizer.ConditionsAwareDecision, authorizer.ConditionsData,
) (authorizer.Decision, string, error) {
	return authorizer.DecisionDeny, "", authorizer.ErrorConditionEvaluationNotSupported
}

// errUnauthorizable is the error for the caller. The cause is only logged, because it contains
// the address of kube-apiserver.
var errUnauthorizable = errors.New(
	"authorization check failed: kube-apiserver made no decision; try again, or see the log of this server")

// Authorize implements authorizer.Authorizer.
func (d *delegatedAuthorizer) Authorize(ctx context.Context,
	a authorizer.Attributes) (authorizer.Decision, string, error) {
	release, err := d.places.Take(ctx, a.GetUser().GetName())
	if err != nil {
		if errors.Is(err, fairness.ErrFull) {
			filters.SetStatusError(ctx, apierrors.NewTooManyRequests(
				fmt.Sprintf("%d SubjectAccessReviews for the user are pending", userReviews+userReviewsWaiting), 1))
		}
		return authorizer.DecisionNoOpinion, "", err
	}
	defer release()
	a = withShortSelectors(a)
	review := a
	if isLong(a) {
		review = uncached{a}
	}
	decision, reason, err := d.next.Authorize(ctx, review)
	// next is also a union and has added the name, which the union of newAuthorizer adds again.
	reason = strings.TrimPrefix(reason, delegated+": ")
	if err != nil {
		// A cancelled request does not show whether kube-apiserver responds.
		if ctx.Err() == nil {
			d.unanswered()
		}
		klog.FromContext(ctx).Error(err, "Authorization check failed", "user", a.GetUser().GetName(), "verb",
			a.GetVerb(), "path", a.GetPath())
		return authorizer.DecisionNoOpinion, "", errUnauthorizable
	}
	if decision == authorizer.DecisionAllow {
		filters.RecordAllowed(ctx, a)
	}
	return decision, reason, nil
}

// isLong reports whether the user and the attributes are too long for the cache. "<" is encoded as six
// bytes in JSON, and a user can be in many groups.
func isLong(a authorizer.Attributes) bool {
	fields := []string{a.GetUser().GetName(), a.GetUser().GetUID(), a.GetVerb()}
	if a.IsResourceRequest() {
		fields = append(fields, a.GetNamespace(), a.GetAPIGroup(), a.GetAPIVersion(), a.GetResource(),
			a.GetSubresource(), a.GetName())
	} else {
		fields = append(fields, a.GetPath())
	}
	fields = append(fields, a.GetUser().GetGroups()...)
	for key, values := range a.GetUser().GetExtra() {
		fields = append(append(fields, key), values...)
	}
	size := 0
	for _, field := range fields {
		size += len(field) + len(`"",`)
	}
	if size < maxCached/len(`\u003c`) || size > maxCached {
		return size > maxCached
	}
	escaped, err := json.Marshal(fields)
	return err != nil || len(escaped) > maxCached
}

// uncached are attributes whose decision the library does not cache: the field that a review about
// them does not contain is too long.
type uncached struct{ authorizer.Attributes }

var padding = strings.Repeat("x", maxCached)

// GetPath implements authorizer.Attributes.
func (u uncached) GetPath() string {
	if u.IsResourceRequest() {
		return padding
	}
	return u.Attributes.GetPath()
}

// GetName implements authorizer.Attributes.
func (u uncached) GetName() string {
	if !u.IsResourceRequest() {
		return padding
	}
	return u.Attributes.GetName()
}

// withShortSelectors returns the attributes without their selectors if these exceed maxSelectors.
// A selector narrows a request, so the user then needs the permission for all objects.
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
	// The attributes are copied, because a watch keeps them.
	return authorizer.AttributesRecord{
		User: a.GetUser(), Verb: a.GetVerb(), Namespace: a.GetNamespace(), APIGroup: a.GetAPIGroup(),
		APIVersion: a.GetAPIVersion(),
		Resource:   a.GetResource(), Subresource: a.GetSubresource(), Name: a.GetName(),
		ResourceRequest: a.IsResourceRequest(), Path: a.GetPath(),
	}
}
