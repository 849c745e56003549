// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/rest"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/pkg/apis/identity"
	"example.com/extension-apiserver/pkg/envtest"
	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
)

// TestForgedHeaders checks requests with forged administrator headers that are sent directly to
// the server's port, as any client that can reach it could.
func TestForgedHeaders(t *testing.T) {
	allowReviews(t)
	frontProxy := readCA(t, shared, certs.FrontProxyCADir)
	users := readCA(t, shared, "client-ca")
	foreign, err := certs.NewCA(certs.CAOptions{Name: "front-proxy-ca", Usage: x509.ExtKeyUsageClientAuth})
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		pair *certs.KeyPair
		// user is the user that the server must authenticate. If it is empty, the server must
		// respond with 401.
		user, authenticator string
	}{
		// The first case validates the test itself: the server trusts the same request with the
		// right certificate.
		"certificate of the front proxy": {issue(t, frontProxy, certs.FrontProxyUser), "forged",
			"RequestHeader"},
		"no certificate":                     {nil, "", ""},
		"front proxy's CA, another name":     {issue(t, frontProxy, "not-the-front-proxy"), "", ""},
		"another CA, the front proxy's name": {issue(t, foreign, certs.FrontProxyUser), "", ""},
		"a user's certificate":               {issue(t, users, "mallory"), "mallory", "ClientCertificate"},
		"a user's certificate, the front proxy's name": {issue(t, users, certs.FrontProxyUser), certs.FrontProxyUser,
			"ClientCertificate"},
	} {
		t.Run(name, func(t *testing.T) {
			status, got := directReview(t, shared, tc.pair, http.Header{
				"X-Remote-User": {"forged"}, "X-Remote-Group": {"system:masters"}, "X-Remote-Uid": {"1"},
				"X-Remote-Extra-Scope": {"all"},
			})
			if tc.user == "" {
				if status != http.StatusUnauthorized {
					t.Errorf("status %d, want 401", status)
				}
				return
			}
			if status != http.StatusCreated || got.UserInfo == nil || got.UserInfo.Username != tc.user ||
				got.Authenticator != tc.authenticator {
				t.Fatalf("status %d: %+v; want 201 as %s by %s", status, got, tc.user, tc.authenticator)
			}
			if tc.authenticator != "RequestHeader" {
				for _, group := range got.UserInfo.Groups {
					if group == "system:masters" {
						t.Error("the forged group was accepted")
					}
				}
				if got.UserInfo.UID == "1" || len(got.UserInfo.Extra["scope"]) > 0 {
					t.Errorf("forged UID or extra was accepted: %+v", got.UserInfo)
				}
			}
		})
	}
}

// TestHealthWithoutCredentials checks that probes need no credentials, and that every other path
// requires them.
func TestHealthWithoutCredentials(t *testing.T) {
	client, err := shared.Servers[0].Client(shared)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]int{
		"/healthz": 200, "/livez": 200, "/readyz": 200,
		"/": 401, "/metrics": 401, "/version": 401, "/apis": 401, "/openapi/v2": 401, "/debug/pprof/": 401,
		"/nowhere": 401,
	} {
		resp, err := client.Get(shared.Servers[0].URL + path)
		if err != nil {
			t.Fatal(err)
		}
		if err := resp.Body.Close(); err != nil {
			t.Error(err)
		}
		if resp.StatusCode != want {
			t.Errorf("GET %s without credentials: %d, want %d", path, resp.StatusCode, want)
		}
	}
}

// directReview creates an IdentityReview at the server's own port.
func directReview(t *testing.T, e *envtest.Environment, pair *certs.KeyPair,
	headers http.Header) (int, identity.IdentityReviewStatus) {
	t.Helper()
	gv := v1.SchemeGroupVersion.String()
	status, body := directRequest(t, e, e.Servers[0].URL, pair, http.MethodPost,
		"/apis/"+gv+"/identityreviews", headers,
		[]byte(`{"apiVersion":"`+gv+`","kind":"IdentityReview"}`))
	var response identity.IdentityReview
	if err := json.Unmarshal([]byte(body), &response); err != nil && status == http.StatusCreated {
		t.Fatalf("%v: %s", err, body)
	}
	return status, response.Status
}

// directRequest sends a request to a server's own port, bypassing kube-apiserver. It returns
// status 0 if the server does not listen yet.
func directRequest(t *testing.T, e *envtest.Environment, url string, pair *certs.KeyPair, method, path string,
	headers http.Header, body []byte) (status int, response string) {
	t.Helper()
	config := e.Servers[0].Config(e)
	if pair != nil {
		config.CertData, config.KeyData = pair.CertPEM, pair.KeyPEM
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), method, url+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/yaml")
	}
	maps.Copy(req.Header, headers)
	resp, err := client.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(data)
}

func readCA(t *testing.T, e *envtest.Environment, name string) *certs.CA {
	t.Helper()
	dir := filepath.Join(e.PKI(), name)
	cert, err := os.ReadFile(filepath.Join(dir, certs.CertFile))
	if err != nil {
		t.Fatal(err)
	}
	key, err := os.ReadFile(filepath.Join(dir, certs.KeyFile))
	if err != nil {
		t.Fatal(err)
	}
	ca, err := certs.ParseCA(cert, key, nil)
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func issue(t *testing.T, ca *certs.CA, user string) *certs.KeyPair {
	t.Helper()
	pair, err := ca.IssueClient(certs.ClientOptions{User: user})
	if err != nil {
		t.Fatal(err)
	}
	return pair
}
