// SPDX-License-Identifier: Apache-2.0

package authentication

import (
	"crypto/x509"
	"fmt"
	"net/http"

	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"

	"example.com/extension-apiserver/internal/frontproxy"
)

// healthPaths are the paths that need no credentials, because the kubelet's probes have none. They
// disclose at most the names of the checks.
var healthPaths = []apiserver.AnonymousAuthCondition{{Path: "/healthz"}, {Path: "/livez"}, {Path: "/readyz"}}

// Sources are the sources of trust. RequestHeader, ClientCA and Status are required.
type Sources struct {
	// RequestHeader describes the trusted front proxy: its CA, its allowed names and the headers
	// that it sets.
	RequestHeader *authenticatorfactory.RequestHeaderConfig
	// ClientCA signs the certificates of the cluster's users.
	ClientCA dynamiccertificates.CAContentProvider
	// TokenReviews sends bearer tokens to kube-apiserver for review. If it is nil, no token is
	// accepted.
	TokenReviews authenticationclient.AuthenticationV1Interface
	// Status reports whether the trust ConfigMap allows the server to trust RequestHeader and
	// ClientCA.
	Status func() Status
}

// Ready returns nil when the front proxy is trusted, and its CA and headers have been loaded. The
// library loads them through informers and reports ready before these have synced. Until then, it
// treats the front proxy as a client without credentials.
func (s Sources) Ready() error {
	if err := s.Status().FrontProxy; err != nil {
		return err
	}
	if _, ok := s.RequestHeader.CAContentProvider.VerifyOptions(); !ok {
		return fmt.Errorf("the front-proxy CA is unknown: ConfigMap kube-system/extension-apiserver-authentication " +
			"has no requestheader-client-ca-file")
	}
	if len(s.RequestHeader.UsernameHeaders.Value()) == 0 {
		return fmt.Errorf("the header for user names is unknown: ConfigMap " +
			"kube-system/extension-apiserver-authentication has no requestheader-username-headers")
	}
	return nil
}

// Authenticator authenticates requests.
type Authenticator struct {
	authenticator.Request
	proxy  *verifiedProxy
	status func() Status
}

// IsFrontProxy reports whether a client that sends these certificates in the handshake is the
// front proxy, according to the current trust.
func (a *Authenticator) IsFrontProxy(certificates []*x509.Certificate) bool {
	known, err := a.proxy.verified(certificates)
	return known && err == nil && a.status().FrontProxy == nil &&
		frontproxy.AllowsName(a.proxy.config.AllowedClientNames.Value(), certificates[0].Subject.CommonName)
}

// New returns an Authenticator. DelegatingAuthenticationOptions.ApplyTo builds one too. But it
// does not reveal which of its parts accepted a request, and it accepts anonymous requests for
// every path, because it ignores the field Anonymous of the options. New therefore combines the
// library's parts in the same order, except for tokens and for the certificate of the front proxy.
func New(opts *genericoptions.DelegatingAuthenticationOptions, sources Sources) (*Authenticator, error) {
	if sources.RequestHeader == nil || sources.ClientCA == nil || sources.Status == nil {
		return nil, fmt.Errorf(
			"build authenticator: the front proxy's trust, the client CA and their status are all required")
	}
	build := func(name string, cfg authenticatorfactory.DelegatingAuthenticatorConfig) (authenticator.Request, error) {
		a, _, err := cfg.New()
		if err != nil {
			return nil, fmt.Errorf("build authenticator %s: %w", name, err)
		}
		return recordCredential(name, a), nil
	}
	users, err := build(ClientCertificate,
		authenticatorfactory.DelegatingAuthenticatorConfig{ClientCertificateCAContentProvider: sources.ClientCA})
	if err != nil {
		return nil, err
	}
	header := sources.RequestHeader
	proxied := group.NewAuthenticatedGroupAdder(headerrequest.NewDynamic(
		header.UsernameHeaders, header.UIDHeaders, header.GroupHeaders, header.ExtraHeaderPrefixes))
	proxy := newVerifiedProxy(header)
	credentials := []authenticator.Request{&certificates{
		proxy: proxy,
		headers: requireTrust(func() error { return sources.Status().FrontProxy },
			recordCredential(RequestHeader, proxied)),
		users: requireTrust(func() error { return sources.Status().Clients }, users),
	}}
	if sources.TokenReviews != nil {
		tokens, err := newTokens(opts, sources.TokenReviews.RESTClient())
		if err != nil {
			return nil, err
		}
		credentials = append(credentials, recordCredential(BearerToken, tokens))
	}
	anonymous, err := build(Anonymous, authenticatorfactory.DelegatingAuthenticatorConfig{
		Anonymous: &apiserver.AnonymousAuthConfig{Enabled: true, Conditions: healthPaths},
	})
	if err != nil {
		return nil, err
	}
	// FailOnError: invalid credentials are rejected, never treated as anonymous.
	return &Authenticator{union.NewFailOnError(union.New(credentials...), anonymous), proxy, sources.Status}, nil
}

// requireTrust rejects requests that next accepts while trusted returns an error. It does not
// affect other requests.
func requireTrust(trusted func() error, next authenticator.Request) authenticator.Request {
	return authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
		resp, ok, err := next.AuthenticateRequest(req)
		if err == nil && ok {
			err = trusted()
		}
		if err != nil {
			return nil, false, err
		}
		return resp, ok, nil
	})
}
