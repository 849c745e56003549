// SPDX-License-Identifier: Apache-2.0

package authentication

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/request/websocket"
	"k8s.io/apiserver/pkg/authentication/token/cache"
	"k8s.io/apiserver/pkg/authentication/user"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"example.com/extension-apiserver/internal/fairness"
)

// newTokens returns an authenticator of bearer tokens in the two places where clients put them, as
// DelegatingAuthenticatorConfig does.
func newTokens(opts *genericoptions.DelegatingAuthenticationOptions,
	client rest.Interface) (authenticator.Request, error) {
	if opts.WebhookRetryBackoff == nil {
		return nil, errors.New("build token authenticator: a backoff for retries is required")
	}
	tokens := cache.New(tokenReviewer{client, *opts.WebhookRetryBackoff, opts.TokenRequestTimeout}, false,
		opts.CacheTTL, opts.CacheTTL)
	authenticate := union.New(bearertoken.New(tokens), websocket.NewProtocolAuthenticator(tokens))
	return group.NewAuthenticatedGroupAdder(withAddressLimit(authenticate)), nil
}

const (
	// addressReviews is how many tokens of one address are reviewed at a time. The client sends
	// 200 TokenReviews per second, in the order of the requests: 10 of them delay others by 50 ms.
	addressReviews = 10
	// addressReviewsWaiting is how many more of them may wait. Further ones are rejected.
	addressReviewsWaiting = 100
)

// withAddressLimit makes an address that sends many tokens wait for its own reviews. The sender of
// a token is unknown before the review. Requests without a token do not wait.
func withAddressLimit(next authenticator.Request) authenticator.Request {
	places := fairness.New(fairness.Limits{PerKey: addressReviews, Queued: addressReviewsWaiting})
	return authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
		if req.Header.Get("Authorization") == "" && req.Header.Get("Sec-WebSocket-Protocol") == "" {
			return nil, false, nil
		}
		address := fairness.ClientKey(req.RemoteAddr)
		release, err := places.Take(req.Context(), address)
		if err != nil {
			return nil, false, fmt.Errorf("review token from %s: %w", address, err)
		}
		defer release()
		return next.AuthenticateRequest(req)
	})
}

// tokenReviewer sends a token to kube-apiserver in a TokenReview. The library's authenticator does
// so too, but it logs the token, as a part of the request, at verbosity 8 and higher. It also
// accepts a response that has an error or no user name.
type tokenReviewer struct {
	client  rest.Interface
	backoff wait.Backoff
	timeout time.Duration
}

// AuthenticateToken implements authenticator.Token.
func (r tokenReviewer) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	if r.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.timeout)
		defer cancel()
	}
	// client-go logs requests to the logger of the context. This logger discards them.
	ctx = klog.NewContext(ctx, klog.New(nil))
	wanted, limited := authenticator.AudiencesFrom(ctx)
	var status authenticationv1.TokenReviewStatus
	if err := webhook.WithExponentialBackoff(ctx, r.backoff, func() (err error) {
		status, err = r.sendReview(ctx, authenticationv1.TokenReviewSpec{Token: token, Audiences: wanted})
		return err
	}, webhook.DefaultShouldRetry); err != nil {
		return nil, false, fmt.Errorf("create TokenReview: %w", err)
	}
	switch {
	case status.Error != "":
		return nil, false, errors.New(status.Error)
	case !status.Authenticated:
		return nil, false, nil
	case status.User.Username == "":
		return nil, false, errors.New("the TokenReview is authenticated, but has no user name")
	}
	audiences := wanted.Intersect(status.Audiences)
	if limited && len(audiences) == 0 {
		return nil, false, fmt.Errorf("the token has the audiences %q, and one of %q is required", status.Audiences, wanted)
	}
	extra := map[string][]string{}
	for key, values := range status.User.Extra {
		extra[key] = values
	}
	return &authenticator.Response{Audiences: audiences, User: &user.DefaultInfo{
		Name: status.User.Username, UID: status.User.UID, Groups: status.User.Groups, Extra: extra,
	}}, true, nil
}

// sendReview sends one TokenReview, and counts it in the library's metrics.
func (r tokenReviewer) sendReview(ctx context.Context,
	spec authenticationv1.TokenReviewSpec) (authenticationv1.TokenReviewStatus, error) {
	code, reviewed, began := 0, &authenticationv1.TokenReview{}, time.Now()
	err := r.client.Post().Resource("tokenreviews").
		Body(&authenticationv1.TokenReview{Spec: spec}).
		Do(ctx).StatusCode(&code).Into(reviewed)
	label := "<error>"
	if code != 0 {
		label = strconv.Itoa(code)
	}
	authenticatorfactory.RecordRequestTotal(ctx, label)
	authenticatorfactory.RecordRequestLatency(ctx, label, time.Since(began).Seconds())
	return reviewed.Status, err
}
