// SPDX-License-Identifier: Apache-2.0

package authentication

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/kubernetes"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/client-go/rest"

	"example.com/extension-apiserver/internal/certs"
)

func newCA(t testing.TB, name string, usage x509.ExtKeyUsage) *certs.CA {
	t.Helper()
	ca, err := certs.NewCA(certs.CAOptions{Name: name, Usage: usage})
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func issueClient(t testing.TB, ca *certs.CA, user string, groups ...string) *certs.KeyPair {
	t.Helper()
	pair, err := ca.IssueClient(certs.ClientOptions{User: user, Groups: groups})
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

func staticCA(t testing.TB, ca *certs.CA) dynamiccertificates.CAContentProvider {
	t.Helper()
	provider, err := dynamiccertificates.NewStaticCAContent("test", certs.Bundle{ca.Certificate}.PEM())
	if err != nil {
		t.Fatal(err)
	}
	return provider
}

// tokenReviews returns a client of a server that accepts the token "good", and that responds
// incorrectly to two others. Requests use the REST client, which the fake clientset does not have.
func tokenReviews(t testing.TB) authenticationclient.AuthenticationV1Interface {
	t.Helper()
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		var review authenticationv1.TokenReview
		if err := json.NewDecoder(req.Body).Decode(&review); err != nil ||
			req.URL.Path != "/apis/authentication.k8s.io/v1/tokenreviews" {
			t.Errorf("request to kube-apiserver: got %s, error %v, want a TokenReview", req.URL.Path, err)
		}
		review.Status = authenticationv1.TokenReviewStatus{Error: "no such token"}
		switch robot := (authenticationv1.UserInfo{Username: "robot"}); review.Spec.Token {
		case "good":
			review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: robot}
		case "unchecked":
			review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: robot,
				Error: "cannot check it"}
		case "nameless":
			review.Status = authenticationv1.TokenReviewStatus{Authenticated: true}
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(review); err != nil {
			t.Errorf("encode review: %v", err)
		}
	}))
	t.Cleanup(ts.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: ts.URL})
	if err != nil {
		t.Fatal(err)
	}
	return client.AuthenticationV1()
}

// sources returns Sources like those from the ConfigMap of a cluster: front proxies named
// front-proxy-client, and the token "good".
func sources(t testing.TB, proxies, users *certs.CA) Sources {
	t.Helper()
	return Sources{
		RequestHeader: &authenticatorfactory.RequestHeaderConfig{
			UsernameHeaders:     headerrequest.StaticStringSlice{"X-Remote-User"},
			UIDHeaders:          headerrequest.StaticStringSlice{"X-Remote-Uid"},
			GroupHeaders:        headerrequest.StaticStringSlice{"X-Remote-Group"},
			ExtraHeaderPrefixes: headerrequest.StaticStringSlice{"X-Remote-Extra-"},
			AllowedClientNames:  headerrequest.StaticStringSlice{"front-proxy-client"},
			CAContentProvider:   staticCA(t, proxies),
		},
		ClientCA:     staticCA(t, users),
		TokenReviews: tokenReviews(t),
		Status:       allowed,
	}
}

func allowed() Status { return Status{} }

// outcome is the result of a request.
type outcome struct {
	User       *user.DefaultInfo
	Credential Credential
	// Refused is the reason if credentials were rejected, or "none" if there were none.
	Refused string
}

// server responds over real TLS with the outcome of each request. Like the library's server, it
// requests a client certificate and leaves it to the authenticator to verify it.
type server struct {
	*httptest.Server
	roots *x509.CertPool
}

func newServer(t *testing.T, s Sources) *server {
	t.Helper()
	authenticator, err := New(genericoptions.NewDelegatingAuthenticationOptions(), s)
	if err != nil {
		t.Fatal(err)
	}
	ca := newCA(t, "servers-ca", x509.ExtKeyUsageServerAuth)
	serving, err := ca.IssueServing(certs.ServingOptions{DNSNames: []string{"localhost"}, IPs: []string{"127.0.0.1"}})
	if err != nil {
		t.Fatal(err)
	}
	ts := httptest.NewUnstartedServer(WithCredential(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		var out outcome
		resp, ok, err := authenticator.AuthenticateRequest(req)
		switch {
		case err != nil:
			out.Refused = err.Error()
		case !ok:
			out.Refused = "none"
		default:
			extra := maps.Clone(resp.User.GetExtra())
			// The fingerprint of the certificate, for audit logs. It differs in each run.
			delete(extra, user.CredentialIDKey)
			if len(extra) == 0 {
				extra = nil
			}
			out.User = &user.DefaultInfo{Name: resp.User.GetName(), UID: resp.User.GetUID(),
				Groups: resp.User.GetGroups(), Extra: extra}
		}
		out.Credential, _ = CredentialFrom(req.Context())
		if err := json.NewEncoder(w).Encode(out); err != nil {
			t.Errorf("encode outcome: %v", err)
		}
	})))
	ts.TLS = &tls.Config{Certificates: []tls.Certificate{tlsPair(serving)}, ClientAuth: tls.RequestClientCert,
		MinVersion: tls.VersionTLS13}
	ts.StartTLS()
	t.Cleanup(ts.Close)
	return &server{ts, certs.Bundle{ca.Certificate}.Pool()}
}

func tlsPair(pair *certs.KeyPair) tls.Certificate {
	return tls.Certificate{Certificate: [][]byte{pair.Certificate.Raw}, PrivateKey: pair.Key}
}

// get sends a request, with the client certificate unless pair is nil.
func (s *server) get(t *testing.T, path string, pair *certs.KeyPair, header http.Header) outcome {
	t.Helper()
	config := &tls.Config{RootCAs: s.roots, MinVersion: tls.VersionTLS13}
	if pair != nil {
		// Not Certificates: a client would omit a certificate whose issuer the server does not
		// announce.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			certificate := tlsPair(pair)
			return &certificate, nil
		}
	}
	transport := &http.Transport{TLSClientConfig: config}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(req.Header, header)
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var out outcome
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
		t.Fatal(err)
	}
	return out
}
