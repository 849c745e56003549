// SPDX-License-Identifier: Apache-2.0

package authentication

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"

	"k8s.io/apiserver/pkg/authentication/authenticator"
)

// Names of the authenticators, as IdentityReview shows them.
const (
	RequestHeader     = "RequestHeader"
	ClientCertificate = "ClientCertificate"
	BearerToken       = "BearerToken"
	Anonymous         = "Anonymous"
)

// Evidence says how a request proved its identity.
type Evidence struct {
	// Authenticator is the name of the authenticator that accepted the request; empty before authentication.
	Authenticator string
	// ProxySubject is the subject of the front proxy's client certificate, with RequestHeader only.
	ProxySubject string
	// ProxySHA256 is the SHA-256 of that certificate, in hexadecimal.
	ProxySHA256 string
}

type evidenceKey struct{}

// WithEvidence gives each request a place for its Evidence. It must run before authentication. The place is a pointer
// in the context, because an authenticator can read the context of a request but not replace it; user.Info is no place
// for it, since impersonation and the group adder make a new one.
func WithEvidence(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		handler.ServeHTTP(w, req.WithContext(context.WithValue(req.Context(), evidenceKey{}, &Evidence{})))
	})
}

// EvidenceFrom returns the evidence of a request; false where WithEvidence did not run.
func EvidenceFrom(ctx context.Context) (Evidence, bool) {
	e, ok := ctx.Value(evidenceKey{}).(*Evidence)
	if !ok {
		return Evidence{}, false
	}
	return *e, true
}

// record remembers in the request's Evidence that next accepted it.
func record(name string, next authenticator.Request) authenticator.Request {
	return authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
		resp, ok, err := next.AuthenticateRequest(req)
		if e, found := req.Context().Value(evidenceKey{}).(*Evidence); ok && err == nil && found {
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
