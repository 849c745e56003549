// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/pkg/envtest"
)

// testClientCAs checks that the extension API server requests client certificates of the same CAs
// as kube-apiserver, and follows their replacement without a restart. It keeps the old CAs, as
// the ConfigMap does: kube-apiserver removes no CA from it before the CA expires.
func testClientCAs(t *testing.T, e *envtest.Environment) {
	kube, ours := e.Admin(t), e.Servers[0].Config(e)
	var before []string
	e.Eventually(t, "the same CA names at both", envtest.WaitTimeout, func(ctx context.Context) error {
		var err error
		if before, err = requestedCAs(ctx, kube); err != nil || len(before) == 0 {
			return errors.Join(err, fmt.Errorf("kube-apiserver requests %q", before))
		}
		got, err := requestedCAs(ctx, ours)
		if diff := cmp.Diff(before, got); diff != "" {
			err = errors.Join(err, fmt.Errorf("our server requests others (-kube-apiserver +ours):\n%s", diff))
		}
		return err
	})

	// Wait until a controller has run: kube-controller-manager exits if its certificate stops
	// being trusted while it starts. It builds all controllers before it runs one.
	e.Eventually(t, "the controllers", envtest.WaitTimeout, func(ctx context.Context) error {
		_, err := e.Client(t).CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err
	})

	oldUsers := readCA(t, e, "client-ca")
	replaced := map[string]*certs.CA{}
	var after []string
	for _, name := range []string{"client-ca", certs.FrontProxyCADir} {
		ca, err := certs.NewCA(certs.CAOptions{Name: "new-" + name, Usage: x509.ExtKeyUsageClientAuth})
		if err != nil {
			t.Fatal(err)
		}
		replaced[name] = ca
		after = append(after, ca.Certificate.Subject.String())
		if err := certs.WriteFiles(filepath.Join(e.PKI(), name),
			map[string]certs.File{certs.CertFile: {Data: ca.CertPEM, Mode: 0o644}}); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(after)
	e.Eventually(t, "kube-apiserver to request the new CAs only", envtest.WaitTimeout, func(ctx context.Context) error {
		got, err := requestedCAs(ctx, kube)
		slices.Sort(got)
		if diff := cmp.Diff(after, got); diff != "" {
			err = errors.Join(err, fmt.Errorf("-want +got:\n%s", diff))
		}
		return err
	})
	union := slices.Sorted(slices.Values(slices.Concat(before, after)))
	e.Eventually(t, "our server to request the old and the new CAs", envtest.WaitTimeout, func(ctx context.Context) error {
		got, err := requestedCAs(ctx, ours)
		slices.Sort(got)
		if diff := cmp.Diff(union, got); diff != "" {
			err = errors.Join(err, fmt.Errorf("-want +got:\n%s", diff))
		}
		return err
	})

	for name, ca := range map[string]*certs.CA{"old": oldUsers, "new": replaced["client-ca"]} {
		status, body := directRequest(t, e, e.Servers[0].URL, issue(t, ca, "somebody"), http.MethodGet,
			"/apis", nil, nil)
		if status != http.StatusOK {
			t.Errorf("GET /apis with a user's certificate of the %s client CA: %d %s, want 200", name, status, body)
		}
	}
}

// requestedCAs returns the names of the CAs in a server's TLS CertificateRequest, in order. It
// verifies the server's certificate.
func requestedCAs(ctx context.Context, config *rest.Config) ([]string, error) {
	config = rest.AnonymousClientConfig(config)
	tlsConfig, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, err
	}
	var names []string
	var requested bool
	tlsConfig.GetClientCertificate = func(request *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		requested = true
		for _, der := range request.AcceptableCAs {
			var name pkix.RDNSequence
			if _, err := asn1.Unmarshal(der, &name); err != nil {
				return nil, err
			}
			names = append(names, name.String())
		}
		return &tls.Certificate{}, nil
	}
	conn, err := (&tls.Dialer{Config: tlsConfig}).DialContext(ctx, "tcp", strings.TrimPrefix(config.Host, "https://"))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if !requested {
		return nil, errors.New("the server did not request a certificate")
	}
	return names, nil
}
