// SPDX-License-Identifier: Apache-2.0

package identityreview

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/kubernetes/fake"

	"example.com/extension-apiserver/internal/authentication"
	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/pkg/apis/identity"
)

var alice = &user.DefaultInfo{
	Name: "alice", UID: "42", Groups: []string{"makers", "system:authenticated"},
	Extra: map[string][]string{"example.com/team": {"a", "b"}},
}

// proxied returns the context of a request that the front proxy sent and the authenticator
// accepted.
func proxied(t *testing.T) context.Context {
	t.Helper()
	ctx, _ := proxiedWith(t)
	return ctx
}

// proxiedWith also returns the SHA-256 fingerprint of the front proxy's certificate.
func proxiedWith(t *testing.T) (ctx context.Context, sha256 string) {
	t.Helper()
	ca, err := certs.NewCA(certs.CAOptions{Name: "front-proxy-ca", Usage: x509.ExtKeyUsageClientAuth})
	if err != nil {
		t.Fatal(err)
	}
	proxy, err := ca.IssueClient(certs.ClientOptions{User: "front-proxy-client"})
	if err != nil {
		t.Fatal(err)
	}
	trust, err := dynamiccertificates.NewStaticCAContent("front-proxy-ca", certs.Bundle{ca.Certificate}.PEM())
	if err != nil {
		t.Fatal(err)
	}
	authenticator, err := authentication.New(genericoptions.NewDelegatingAuthenticationOptions(),
		authentication.Sources{
			Status: func() authentication.Status { return authentication.Status{} },
			RequestHeader: &authenticatorfactory.RequestHeaderConfig{
				UsernameHeaders:     headerrequest.StaticStringSlice{"X-Remote-User"},
				UIDHeaders:          headerrequest.StaticStringSlice{},
				GroupHeaders:        headerrequest.StaticStringSlice{},
				ExtraHeaderPrefixes: headerrequest.StaticStringSlice{},
				CAContentProvider:   trust, AllowedClientNames: headerrequest.StaticStringSlice{},
			},
			ClientCA:     trust,
			TokenReviews: fake.NewClientset().AuthenticationV1(),
		})
	if err != nil {
		t.Fatal(err)
	}
	handler := authentication.WithCredential(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		if _, ok, err := authenticator.AuthenticateRequest(req); !ok || err != nil {
			t.Errorf("authenticate: got %t, error %v, want accepted", ok, err)
		}
		ctx = req.Context()
	}))
	req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil)
	req.Header.Set("X-Remote-User", alice.Name)
	req.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{proxy.Certificate}}
	handler.ServeHTTP(httptest.NewRecorder(), req)
	return ctx, certs.Fingerprint(proxy.Certificate)
}

func storage(t *testing.T) rest.Creater {
	t.Helper()
	resources, err := NewStorage(nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	creater, ok := resources["identityreviews"].(rest.Creater)
	if !ok || len(resources) != 1 {
		t.Fatalf("got %v, want identityreviews only, which can be created", resources)
	}
	return creater
}

// TestCreate: the response contains the identity that the server authenticated and ignores the
// status that the client sent.
func TestCreate(t *testing.T) {
	request := &identity.IdentityReview{
		ObjectMeta: metav1.ObjectMeta{Name: "mine"},
		Status: identity.IdentityReviewStatus{
			UserInfo:      &authenticationv1.UserInfo{Username: "root", Groups: []string{"system:masters"}},
			Authenticator: "Trust me", ProxySubject: "CN=x", ProxyCertificateSHA256: "00",
		},
	}
	sent := request.DeepCopy()
	ctx, shown := proxiedWith(t)
	ctx = genericapirequest.WithUser(ctx, alice)
	got, err := storage(t).Create(ctx, request, rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := &identity.IdentityReview{ObjectMeta: sent.ObjectMeta, Status: identity.IdentityReviewStatus{
		UserInfo: &authenticationv1.UserInfo{
			Username: "alice", UID: "42", Groups: []string{"makers", "system:authenticated"},
			Extra: map[string]authenticationv1.ExtraValue{"example.com/team": {"a", "b"}},
		},
		Authenticator: authentication.RequestHeader,
		ProxySubject:  "CN=front-proxy-client", ProxyCertificateSHA256: shown,
	}}
	if diff := cmp.Diff(runtime.Object(want), got); diff != "" {
		t.Errorf("response (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(sent, request); diff != "" {
		t.Errorf("the request was changed (-want +got):\n%s", diff)
	}
}

// TestCreateErrors: a request without a user or a credential is an internal error, and an
// admission error is returned unchanged.
func TestCreateErrors(t *testing.T) {
	refused := errors.New("admission says no")
	for _, tc := range []struct {
		name     string
		ctx      context.Context
		validate rest.ValidateObjectFunc
		check    func(error) bool
		want     string
	}{
		{"no user", proxied(t), nil, apierrors.IsInternalError, "without a user"},
		{"no evidence", genericapirequest.WithUser(t.Context(), alice), nil, apierrors.IsInternalError,
			"without evidence"},
		{"admission", genericapirequest.WithUser(proxied(t), alice),
			func(context.Context, runtime.Object) error { return refused },
			func(err error) bool { return errors.Is(err, refused) }, "admission says no"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := storage(t).Create(tc.ctx, &identity.IdentityReview{}, tc.validate, &metav1.CreateOptions{})
			if got != nil || !tc.check(err) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v and error %v, want no response and an error with %q", got, err, tc.want)
			}
		})
	}
}

// TestVirtual: the resource supports create only, because nothing is stored.
func TestVirtual(t *testing.T) {
	s := any(storage(t))
	for verb, has := range map[string]bool{
		"get": is[rest.Getter](s), "list": is[rest.Lister](s), "update": is[rest.Updater](s),
		"watch": is[rest.Watcher](s), "delete": is[rest.GracefulDeleter](s),
	} {
		if has {
			t.Errorf("verbs: got %s, want create only", verb)
		}
	}
	if scope, ok := s.(rest.Scoper); !ok || scope.NamespaceScoped() {
		t.Error("identityreviews: got namespaced, want cluster-scoped")
	}
}

func is[T any](v any) bool {
	_, ok := v.(T)
	return ok
}
