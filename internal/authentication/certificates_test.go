// SPDX-License-Identifier: Apache-2.0

package authentication

import (
	"crypto/x509"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/authentication/user"

	"example.com/extension-apiserver/internal/certs"
)

// TestS05SharedCA checks that the front proxy's certificate identifies no user even if the front
// proxy and users share a CA, which can be tolerated. If any name is tolerated too, every user's
// certificate counts as the front proxy's as soon as the request names a user.
func TestS05SharedCA(t *testing.T) {
	ca := newCA(t, "shared-ca", x509.ExtKeyUsageClientAuth)
	proxy, alice := issueClient(t, ca, "front-proxy-client"), issueClient(t, ca, "alice", "makers")
	untrusted := func() Status { return Status{FrontProxy: errors.New("no trust")} }
	header := func(key, value string) http.Header { return http.Header{key: {value}} }
	as := func(authenticator, proxySubject, name string, groups ...string) outcome {
		return outcome{User: &user.DefaultInfo{Name: name, Groups: append(groups, user.AllAuthenticated)},
			Credential: Credential{Authenticator: authenticator, ProxySubject: proxySubject}}
	}
	asAlice := as(ClientCertificate, "", "alice", "makers")
	const noUser = "no user name header"
	anyName := []string{}
	for _, tc := range []struct {
		name   string
		names  []string // nil means the name of the front proxy
		status func() Status
		pair   *certs.KeyPair
		header http.Header
		want   outcome // Refused is a substring of the reason
	}{
		{"the front proxy names a user", nil, allowed, proxy, header("X-Remote-User", "bob"),
			as(RequestHeader, "CN=front-proxy-client", "bob")},
		{"the front proxy without a header", nil, allowed, proxy, nil, outcome{Refused: noUser}},
		{"the front proxy with an empty name", nil, allowed, proxy, header("X-Remote-User", ""),
			outcome{Refused: noUser}},
		{"the front proxy with groups only", nil, allowed, proxy, header("X-Remote-Group", "system:masters"),
			outcome{Refused: noUser}},
		{"the front proxy without trust", nil, untrusted, proxy, header("X-Remote-User", "bob"),
			outcome{Refused: "no trust"}},
		{"the front proxy without trust and header", nil, untrusted, proxy, nil, outcome{Refused: noUser}},
		{"the front proxy with a token", nil, allowed, proxy, header("Authorization", "Bearer good"),
			as(BearerToken, "", "robot")},
		{"a user", nil, allowed, alice, nil, asAlice},
		{"a user names another", nil, allowed, alice, header("X-Remote-User", "bob"), asAlice},
		{"a user without trust in the front proxy", nil, untrusted, alice, header("X-Remote-User", "bob"), asAlice},

		{"any name: the front proxy names a user", anyName, allowed, proxy, header("X-Remote-User", "bob"),
			as(RequestHeader, "CN=front-proxy-client", "bob")},
		{"any name: a user", anyName, allowed, alice, nil, asAlice},
		{"any name: a user with a group in the header", anyName, allowed, alice,
			header("X-Remote-Group", "system:masters"), asAlice},
		{"any name: a user names another", anyName, allowed, alice, header("X-Remote-User", "bob"),
			as(RequestHeader, "CN=alice,O=makers", "bob")},
		{"any name: no user in the header", anyName, allowed, alice, header("X-Remote-User", ""),
			outcome{Refused: noUser}},
		{"any name: a user names another without trust", anyName, untrusted, alice, header("X-Remote-User", "bob"),
			outcome{Refused: "no trust"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			src := sources(t, ca, ca)
			src.Status = tc.status
			if tc.names != nil {
				src.RequestHeader.AllowedClientNames = headerrequest.StaticStringSlice(tc.names)
			}
			got := newServer(t, src).get(t, "/apis", tc.pair, tc.header)
			if (got.Refused == "") != (tc.want.Refused == "") || !strings.Contains(got.Refused, tc.want.Refused) {
				t.Errorf("refused: got %q, want %q", got.Refused, tc.want.Refused)
			}
			if got.Refused != "" {
				return // nothing reads the record of a rejected request
			}
			if tc.want.Credential.ProxySubject != "" {
				tc.want.Credential.ProxySHA256 = certs.Fingerprint(tc.pair.Certificate)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("outcome (-want +got):\n%s", diff)
			}
		})
	}
}
