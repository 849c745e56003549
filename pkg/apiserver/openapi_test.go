// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/kubernetes/fake"

	"example.com/extension-apiserver/pkg/authentication"
	"example.com/extension-apiserver/pkg/certs"
)

// TestWithoutOpenAPIHash: through kube-apiserver nobody is redirected; who asks the server itself gets what the library says.
func TestWithoutOpenAPIHash(t *testing.T) {
	ca := func() (*certs.CA, dynamiccertificates.CAContentProvider) {
		ca, err := certs.NewCA(certs.CAOptions{Name: "ca", Usage: x509.ExtKeyUsageClientAuth})
		if err != nil {
			t.Fatal(err)
		}
		provider, err := dynamiccertificates.NewStaticCAContent("ca", certs.Bundle{ca.Certificate}.PEM())
		if err != nil {
			t.Fatal(err)
		}
		return ca, provider
	}
	proxies, proxyTrust := ca()
	users, userTrust := ca()
	authenticator, err := authentication.New(genericoptions.NewDelegatingAuthenticationOptions(), authentication.Sources{
		Verdict: func() authentication.Verdict { return authentication.Verdict{} },
		RequestHeader: &authenticatorfactory.RequestHeaderConfig{
			UsernameHeaders: headerrequest.StaticStringSlice{"X-Remote-User"}, UIDHeaders: headerrequest.StaticStringSlice{},
			GroupHeaders: headerrequest.StaticStringSlice{}, ExtraHeaderPrefixes: headerrequest.StaticStringSlice{},
			CAContentProvider: proxyTrust, AllowedClientNames: headerrequest.StaticStringSlice{},
		},
		ClientCA: userTrust, TokenReviews: fake.NewClientset().AuthenticationV1(),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, url string
		issuer    *certs.CA
		want      string
	}{
		{"proxied", "/openapi/v3/apis/a/v1?hash=old&timeout=32s", proxies, "/openapi/v3/apis/a/v1?timeout=32s"},
		{"proxied, another path", "/apis/a/v1?hash=old", proxies, "/apis/a/v1?hash=old"},
		{"direct", "/openapi/v3/apis/a/v1?hash=old", users, "/openapi/v3/apis/a/v1?hash=old"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pair, err := tc.issuer.IssueClient(certs.ClientOptions{User: "client"})
			if err != nil {
				t.Fatal(err)
			}
			req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, tc.url, nil)
			req.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{pair.Certificate}}
			req.Header.Set("X-Remote-User", "alice")
			got := ""
			handler := withoutOpenAPIHash(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { got = req.URL.String() }))
			authentication.WithEvidence(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				if _, ok, err := authenticator.AuthenticateRequest(req); !ok || err != nil {
					t.Fatalf("authenticate: %t, %v", ok, err)
				}
				handler.ServeHTTP(w, req)
			})).ServeHTTP(httptest.NewRecorder(), req)
			if got != tc.want || req.URL.String() != tc.url {
				t.Errorf("served: got %s, want %s; the request itself became %s", got, tc.want, req.URL)
			}
		})
	}
}
