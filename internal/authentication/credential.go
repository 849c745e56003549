// SPDX-License-Identifier: Apache-2.0

package authentication

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"

	"k8s.io/apiserver/pkg/authentication/authenticator"
)

// Names of the authenticators, as IdentityReview reports them.
const (
	RequestHeader     = "RequestHeader"
	ClientCertificate = "ClientCertificate"
	BearerToken       = "BearerToken"
	Anonymous         = "Anonymous"
)

// Credential describes how a request was authenticated.
type Credential struct {
	// Authenticator is the name of the authenticator that accepted the request; empty before
	// authentication.
	Authenticator string
	// ProxySubject is the subject of the front proxy's client certificate. It is set with
	// RequestHeader only.
	ProxySubject string
	// ProxySHA256 is the SHA-256 of that certificate, in hexadecimal.
	ProxySHA256 string
}

type credentialKey struct{}

// WithCredential adds an empty Credential to the context of each request. It must run before
// authentication. The context holds a pointer, because an authenticator cannot replace the
// context. user.Info cannot hold it: impersonation and the group adder create a new one.
func WithCredential(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		handler.ServeHTTP(w, req.WithContext(context.WithValue(req.Context(), credentialKey{}, &Credential{})))
	})
}

// CredentialFrom returns the Credential of a request, and false if WithCredential did not run.
func CredentialFrom(ctx context.Context) (Credential, bool) {
	e, ok := ctx.Value(credentialKey{}).(*Credential)
	if !ok {
		return Credential{}, false
	}
	return *e, true
}

// recordCredential sets the Credential of a request that next accepts.
func recordCredential(name string, next authenticator.Request) authenticator.Request {
	return authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
		resp, ok, err := next.AuthenticateRequest(req)
		if e, found := req.Context().Value(credentialKey{}).(*Credential); ok && err == nil && found {
			e.Authenticator = name
			if name == RequestHeader && req.TLS != nil && len(req.TLS.PeerCertificates) > 0 {
				proxy := req.TLS.PeerCertificates[0]
				sum := sha256.Sum256(proxy.Raw)
				e.ProxySubject, e.ProxySHA256 = proxy.Subject.String(), hex.EncodeToString(sum[:])
			}
		}
		return resp, ok, err
	})
}
