// SPDX-License-Identifier: Apache-2.0

package aggregated

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"example.com/extension-apiserver/internal/certs"
)

// TestS07TrailingSpace checks the handling of a name that ends with a space, which is a different
// name. It arrives complete over HTTP/2, which kube-apiserver uses for proxied requests.
//
// An upgrade request uses HTTP/1.1, where kube-apiserver trims the values of headers before the
// server can see them. So no client certificate and no other source of names and groups may
// contain leading or trailing spaces. certgen rejects them.
func TestS07TrailingSpace(t *testing.T) {
	anybody(t)
	name := unique("alice")
	config := spaced(t, name+" ", "makers ")
	server := newEndpoint(t, config)
	sameIdentity(t, server.Must(t, http.MethodPost, selfReviews, nil, []byte(selfReview)).Body,
		server.Must(t, http.MethodPost, current+reviews, nil, reviewJSON).Body)

	got := server.Do(t, http.MethodPost, current+reviews, upgrade(), reviewJSON)
	seen := completed(t, logs.server, got.Header.Get("Audit-Id")).User
	seen.Extra = nil
	want := authenticationv1.UserInfo{Username: name, Groups: []string{"makers", user.AllAuthenticated}}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Errorf("identity in a request for an upgrade; if it is whole now, this test and its comment are out of "+
			"date (-want +got):\n%s", diff)
	}
}

// spaced returns a configuration with a certificate that internal/certs does not issue.
func spaced(t *testing.T, name, group string) *rest.Config {
	t.Helper()
	dir := filepath.Join(shared.PKI(), "client-ca")
	ca, err := tls.LoadX509KeyPair(filepath.Join(dir, certs.CertFile), filepath.Join(dir, certs.KeyFile))
	if err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: name, Organization: []string{group}},
		NotBefore: now.Add(-time.Minute), NotAfter: now.Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, ca.Leaf, &key.PublicKey, ca.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(shared.Admin(t))
	config.CertData = pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: der})
	if config.KeyData, err = keyutil.MarshalPrivateKeyToPEM(key); err != nil {
		t.Fatal(err)
	}
	return config
}
