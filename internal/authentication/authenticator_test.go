// SPDX-License-Identifier: Apache-2.0

package authentication

import (
	"crypto/x509"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	genericoptions "k8s.io/apiserver/pkg/server/options"

	"example.com/extension-apiserver/internal/certs"
)

// TestNew sends requests with every kind of credentials over TLS, and checks that only the front
// proxy may name another user.
func TestNew(t *testing.T) {
	proxies := newCA(t, "front-proxy-ca", x509.ExtKeyUsageClientAuth)
	users := newCA(t, "client-ca", x509.ExtKeyUsageClientAuth)
	s := newServer(t, sources(t, proxies, users))

	proxy := issueClient(t, proxies, "front-proxy-client")
	otherName := issueClient(t, proxies, "another-client")
	otherCA := issueClient(t, newCA(t, "front-proxy-ca", x509.ExtKeyUsageClientAuth), "front-proxy-client")
	namedLikeProxy := issueClient(t, users, "front-proxy-client")
	alice := issueClient(t, users, "alice", "makers")

	mallory := http.Header{"X-Remote-User": {"mallory"}, "X-Remote-Group": {"system:masters"}}
	token := func(value string) http.Header { return http.Header{"Authorization": {"Bearer " + value}} }
	authenticated := func(name string, groups ...string) *user.DefaultInfo {
		return &user.DefaultInfo{Name: name, Groups: append(groups, user.AllAuthenticated)}
	}
	anonymous := outcome{User: &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}},
		Credential: Credential{Authenticator: Anonymous}}

	for _, tc := range []struct {
		name   string
		path   string
		pair   *certs.KeyPair
		header http.Header
		// want.Refused is a substring of the reason.
		want outcome
	}{
		{"front proxy", "/apis", proxy, http.Header{
			"X-Remote-User": {"bob"}, "X-Remote-Uid": {"42"}, "X-Remote-Group": {"a", "b"},
			"X-Remote-Extra-Team": {"x", "y"},
		}, outcome{
			User: &user.DefaultInfo{Name: "bob", UID: "42", Groups: []string{"a", "b", user.AllAuthenticated},
				Extra: map[string][]string{"team": {"x", "y"}}},
			Credential: Credential{Authenticator: RequestHeader, ProxySubject: "CN=front-proxy-client"},
		}},
		{"front proxy, no user", "/apis", proxy, nil, outcome{Refused: "no user name header"}},
		{"front proxy CA, another name", "/apis", otherName, mallory, outcome{Refused: "is not in the allowed list"}},
		{"front proxy's name, another CA", "/apis", otherCA, mallory, outcome{Refused: "unknown authority"}},
		{"front proxy's name from the users' CA", "/apis", namedLikeProxy, mallory,
			outcome{User: authenticated("front-proxy-client"),
				Credential: Credential{Authenticator: ClientCertificate}}},
		{"user", "/apis", alice, nil, outcome{User: authenticated("alice", "makers"),
			Credential: Credential{Authenticator: ClientCertificate}}},
		{"user who claims to be another", "/apis", alice, mallory,
			outcome{User: authenticated("alice", "makers"), Credential: Credential{Authenticator: ClientCertificate}}},
		{"unauthenticated with a user header", "/apis", nil, mallory, outcome{Refused: "none"}},
		{"token", "/apis", nil, token("good"), outcome{User: authenticated("robot"),
			Credential: Credential{Authenticator: BearerToken}}},
		{"bad token", "/apis", nil, token("bad"), outcome{Refused: "no such token"}},
		{"token that could not be checked", "/apis", nil, token("unchecked"), outcome{Refused: "cannot check it"}},
		{"token of a user without a name", "/apis", nil, token("nameless"), outcome{Refused: "has no user name"}},

		{"healthz", "/healthz", nil, nil, anonymous},
		{"livez", "/livez", nil, nil, anonymous},
		{"readyz", "/readyz", nil, nil, anonymous},
		{"readyz, claims", "/readyz", nil, mallory, anonymous},
		{"root", "/", nil, nil, outcome{Refused: "none"}},
		{"discovery", "/apis", nil, nil, outcome{Refused: "none"}},
		{"OpenAPI", "/openapi/v3", nil, nil, outcome{Refused: "none"}},
		{"metrics", "/metrics", nil, nil, outcome{Refused: "none"}},
		{"version", "/version", nil, nil, outcome{Refused: "none"}},
		{"below readyz", "/readyz/etcd", nil, nil, outcome{Refused: "none"}},
		{"beside readyz", "/readyzz", nil, nil, outcome{Refused: "none"}},

		// Invalid credentials are never treated as missing ones.
		{"readyz, bad certificate", "/readyz", otherCA, nil, outcome{Refused: "unknown authority"}},
		{"readyz, another name", "/readyz", otherName, mallory, outcome{Refused: "is not in the allowed list"}},
		{"readyz, bad token", "/readyz", nil, token("bad"), outcome{Refused: "no such token"}},
		{"readyz, user", "/readyz", alice, nil, outcome{User: authenticated("alice", "makers"),
			Credential: Credential{Authenticator: ClientCertificate}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := s.get(t, tc.path, tc.pair, tc.header)
			if (got.Refused == "") != (tc.want.Refused == "") || !strings.Contains(got.Refused, tc.want.Refused) {
				t.Errorf("refused: got %q, want %q", got.Refused, tc.want.Refused)
			}
			got.Refused, tc.want.Refused = "", ""
			if tc.want.Credential.ProxySubject != "" {
				tc.want.Credential.ProxySHA256 = certs.Fingerprint(tc.pair.Certificate)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("outcome (-want +got):\n%s", diff)
			}
		})
	}
}

// noCA is the provider for a ConfigMap that has not been read yet.
type noCA struct {
	dynamiccertificates.CAContentProvider
}

func (noCA) VerifyOptions() (x509.VerifyOptions, bool) { return x509.VerifyOptions{}, false }

func TestReady(t *testing.T) {
	proxies := staticCA(t, newCA(t, "front-proxy-ca", x509.ExtKeyUsageClientAuth))
	header := headerrequest.StaticStringSlice{"X-Remote-User"}
	for _, tc := range []struct {
		name string
		have authenticatorfactory.RequestHeaderConfig
		want string
	}{
		{"all there", authenticatorfactory.RequestHeaderConfig{CAContentProvider: proxies, UsernameHeaders: header},
			""},
		{"no CA", authenticatorfactory.RequestHeaderConfig{CAContentProvider: noCA{}, UsernameHeaders: header},
			"ConfigMap kube-system/extension-apiserver-authentication has no requestheader-client-ca-file"},
		{"no header", authenticatorfactory.RequestHeaderConfig{CAContentProvider: proxies,
			UsernameHeaders: headerrequest.StaticStringSlice{}},
			"ConfigMap kube-system/extension-apiserver-authentication has no requestheader-username-headers"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := ""
			if err := (Sources{RequestHeader: &tc.have, Status: allowed}).Ready(); err != nil {
				got = err.Error()
			}
			if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// TestNewNeedsAllSources checks that New rejects missing sources. Without a source, an
// authenticator would be missing without notice.
func TestNewNeedsAllSources(t *testing.T) {
	ca := newCA(t, "ca", x509.ExtKeyUsageClientAuth)
	for name, drop := range map[string]func(*Sources){
		"front proxy": func(s *Sources) { s.RequestHeader = nil },
		"client CA":   func(s *Sources) { s.ClientCA = nil },
		"status":      func(s *Sources) { s.Status = nil },
	} {
		t.Run(name, func(t *testing.T) {
			s := sources(t, ca, ca)
			drop(&s)
			if a, err := New(genericoptions.NewDelegatingAuthenticationOptions(), s); a != nil || err == nil ||
				!strings.Contains(err.Error(), "all required") {
				t.Errorf("got %v and error %v, want none and an error with %q", a, err, "all required")
			}
		})
	}
}

// TestIsFrontProxy checks that the front proxy needs a certificate of its CA with an allowed name,
// and current trust.
func TestIsFrontProxy(t *testing.T) {
	proxies, users := newCA(t, "proxies", x509.ExtKeyUsageClientAuth), newCA(t, "users", x509.ExtKeyUsageClientAuth)
	s, status := sources(t, proxies, users), Status{}
	s.Status = func() Status { return status }
	a, err := New(genericoptions.NewDelegatingAuthenticationOptions(), s)
	if err != nil {
		t.Fatal(err)
	}
	proxy, other, user := issueClient(t, proxies, "front-proxy-client"), issueClient(t, proxies, "other"),
		issueClient(t, users, "front-proxy-client")
	for _, tc := range []struct {
		name   string
		pair   *certs.KeyPair
		status Status
		want   bool
	}{
		{"front proxy", proxy, Status{}, true},
		{"another name", other, Status{}, false},
		{"another CA", user, Status{}, false},
		{"no trust", proxy, Status{FrontProxy: errors.New("any name")}, false},
		{"trust again", proxy, Status{}, true},
	} {
		status = tc.status
		if got := a.IsFrontProxy([]*x509.Certificate{tc.pair.Certificate}); got != tc.want {
			t.Errorf("%s: got %t, want %t", tc.name, got, tc.want)
		}
	}
}

// TestNoCredential checks that a missing Credential can be distinguished from an empty one.
func TestNoCredential(t *testing.T) {
	if got, ok := CredentialFrom(t.Context()); ok {
		t.Errorf("got %v, want none", got)
	}
}
