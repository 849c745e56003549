// SPDX-License-Identifier: Apache-2.0

package direct

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/pkg/envtest"
)

func bearer(token string) http.Header { return http.Header{"Authorization": {"Bearer " + token}} }

// account is the ServiceAccount of the server in the manifests, here an ordinary account.
const account = "system:serviceaccount:" + envtest.Namespace + ":extension-apiserver"

// accountToken requests a token of the account from kube-apiserver. Without audiences the token is
// for kube-apiserver itself.
func accountToken(t *testing.T, audiences ...string) string {
	t.Helper()
	client, err := shared.AdminClient()
	if err != nil {
		t.Fatal(err)
	}
	request, err := client.CoreV1().ServiceAccounts(envtest.Namespace).CreateToken(t.Context(), "extension-apiserver",
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return request.Status.Token
}

// jwt returns a token for the account as kube-apiserver would issue it, signed by the key. A nil
// key means the algorithm "none".
func jwt(t *testing.T, key crypto.Signer, expires time.Time) string {
	t.Helper()
	part := base64.RawURLEncoding.EncodeToString
	algorithm := "none"
	if key != nil {
		algorithm = "ES256"
	}
	token := part([]byte(`{"alg":"`+algorithm+`"}`)) + "." + part(fmt.Appendf(nil,
		`{"iss":"https://kubernetes.default.svc","aud":["https://kubernetes.default.svc"],"exp":%d,"iat":%d,"nbf":%[2]d,"sub":%q,`+
			`"kubernetes.io":{"namespace":%q,"serviceaccount":{"name":"extension-apiserver","uid":"1"}}}`,
		expires.Unix(), expires.Add(-time.Hour).Unix(), account, envtest.Namespace))
	if key == nil {
		return token + "."
	}
	sum := sha256.Sum256([]byte(token))
	r, s, err := ecdsa.Sign(rand.Reader, key.(*ecdsa.PrivateKey), sum[:])
	if err != nil {
		t.Fatal(err)
	}
	return token + "." + part(append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...))
}

// TestS15S17TokenIsReviewed checks that the server accepts no token by itself. It creates a
// TokenReview at kube-apiserver, which detects tokens that are expired, revoked or for another
// audience.
func TestS15S17TokenIsReviewed(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	otherKey, err := certs.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(shared.PKI(), "service-account", certs.KeyFile))
	if err != nil {
		t.Fatal(err)
	}
	signer, err := certs.ParsePrivateKey(data)
	if err != nil {
		t.Fatal(err)
	}
	good := accountToken(t)
	for _, tc := range []struct{ name, token, want string }{
		{"S15 a good one", good, account},
		{"S15 random", "bm90IGEgdG9rZW4.at-all", ""},
		{"S15 signed by another key", jwt(t, otherKey, time.Now().Add(time.Hour)), ""},
		{"S15 unsigned", jwt(t, nil, time.Now().Add(time.Hour)), ""},
		{"S15 expired", jwt(t, signer, time.Now().Add(-time.Minute)), ""},
		{"S15 of a deleted account", jwt(t, signer, time.Now().Add(time.Hour)), ""},
		{"S15 a good one, changed", good[:len(good)-4] + "AAAA", ""},
		{"S15 a good one, cut off", good[:strings.LastIndex(good, ".")+1], ""},
		{"S17 for another audience", accountToken(t, "https://elsewhere.example.com"), ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			review, got := s.review(t, nil, bearer(tc.token))
			if !slices.Contains(s.tokens(t), tc.token) {
				t.Error("kube-apiserver got no TokenReview of the token")
			}
			switch {
			case tc.want == "":
				got.want(t, "token", http.StatusUnauthorized)
				s.try(nil, http.MethodGet, "/readyz", bearer(tc.token), "").want(t, "token at an open path",
					http.StatusUnauthorized)
			case review == nil || review.UserInfo.Username != tc.want || review.Authenticator != "BearerToken":
				t.Errorf("%s, want to be %s by BearerToken", got, tc.want)
			}
		})
	}
}

// TestS15TokenInLogs checks that the log contains no token at any verbosity: a token gives all
// access of its owner to a reader of the logs.
func TestS15TokenInLogs(t *testing.T) {
	t.Parallel()
	for _, verbosity := range []string{"4", "6", "7", "8", "10"} {
		t.Run("v="+verbosity, func(t *testing.T) {
			s := newServer(t, "-v="+verbosity)
			tokens := []string{accountToken(t), "canary-token-of-nobody"}
			for _, token := range tokens {
				s.review(t, nil, bearer(token))
			}
			// Browsers can send a token only as a protocol of a WebSocket.
			forms := slices.Clone(tokens)
			for _, token := range []string{accountToken(t), "canary-token-in-a-protocol"} {
				form := base64.RawURLEncoding.EncodeToString([]byte(token))
				tokens, forms = append(tokens, token), append(forms, token, form)
				transport := s.keep(t, nil).Transport.(*http.Transport)
				transport.ForceAttemptHTTP2 = false // only HTTP/1.1 can be upgraded
				got := s.send(transport, http.MethodGet, consolesOf("none"),
					webSocket("base64url.bearer.authorization.k8s.io."+form, "v5.channel.k8s.io"), "")
				if got.status != http.StatusForbidden && got.status != http.StatusUnauthorized {
					t.Errorf("a token in a protocol: %s, want 403, or 401 for one of no user", got)
				}
			}
			// The test setup works: all tokens were reviewed.
			if diff := cmp.Diff(tokens, s.tokens(t)); diff != "" {
				t.Errorf("TokenReviews (-want +got):\n%s", diff)
			}
			log := s.end()
			for _, form := range forms {
				if before, after, found := strings.Cut(log, form); found {
					line, _, _ := strings.Cut(after, "\n")
					t.Errorf("the token is in the log: %s<token>%s", before[strings.LastIndex(before, "\n")+1:], line)
				}
			}
		})
	}
}

// TestS16TokenReviewFails checks that a missing or invalid TokenReview response does not
// authenticate the user.
func TestS16TokenReviewFails(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	status := func(fields string) http.HandlerFunc {
		return reply(http.StatusCreated,
			`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","status":{`+fields+`}}`)
	}
	const boss = `"user":{"username":"boss","groups":["bosses"]}`
	scripts := map[string]http.HandlerFunc{
		"500": reply(http.StatusInternalServerError,
			statusOf(http.StatusInternalServerError, metav1.StatusReasonInternalError)),
		"403": reply(http.StatusForbidden,
			statusOf(http.StatusForbidden, metav1.StatusReasonForbidden)),
		"no-response":            hang,
		"broken-connection":      reset,
		"malformed":              reply(http.StatusCreated, `{"status":{"authenticated":true,`+boss),
		"html":                   reply(http.StatusOK, "<html>authenticated: true</html>"),
		"nothing":                reply(http.StatusCreated, ""),
		"empty-status":           status(""),
		"no":                     status(`"authenticated":false,` + boss),
		"no-response-but-a-user": status(boss),
		"another-kind": reply(http.StatusCreated,
			`{"apiVersion":"v1","kind":"Status","status":"Success"}`),
		"authenticated-with-an-error": status(`"authenticated":true,"error":"cannot check",` + boss),
		"authenticated-without-name":  status(`"authenticated":true,"user":{"groups":["bosses"]}`),
		"authenticated":               status(`"authenticated":true,` + boss),
	}
	s.script(tokenReviews, func(w http.ResponseWriter, req *http.Request) {
		review := &authenticationv1.TokenReview{}
		body, _ := readAll(req)
		decode(t, body, review)
		scripts[review.Spec.Token](w, req)
	})
	for name := range scripts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := s.get(t, nil, bearer(name))
			if name == "authenticated" {
				got.want(t, "a valid response", http.StatusOK)
			} else if got.status != http.StatusUnauthorized && got.status < 500 {
				t.Errorf("%s, want 401 or 5xx", got)
			}
		})
	}
}
