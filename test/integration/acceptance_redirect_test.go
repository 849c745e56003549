// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/pkg/envtest"
)

// testRedirect checks that a compromised backend cannot redirect a client, with its credentials,
// to another address: kube-apiserver neither follows nor forwards a redirect.
func testRedirect(t *testing.T, e *envtest.Environment) {
	var target atomic.Int32
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { target.Add(1) }))
	t.Cleanup(elsewhere.Close)
	gv := schema.GroupVersion{Group: "redirect.throwaway.example.org", Version: "v1"}
	namespace := e.NewNamespace(t)
	backend, ca := newBackend(t, e, certs.Service{Name: "redirect", Namespace: namespace},
		func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/go") {
				http.Redirect(w, r, elsewhere.URL+"/target", http.StatusMovedPermanently)
			}
		})
	newService(t, e, namespace, corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "redirect"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	})
	port := int32(backend.Listener.Addr().(*net.TCPAddr).Port) //nolint:gosec // a port fits
	name := register(t, e, gv, apiregistrationv1.ServiceReference{Namespace: namespace, Name: "redirect", Port: &port},
		ca)
	e.Eventually(t, "the backend to be available", envtest.WaitTimeout, func(ctx context.Context) error {
		service, err := apiServices(t, e).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if c := available(service); c == nil || c.Status != apiregistrationv1.ConditionTrue {
			return fmt.Errorf("condition %+v", c)
		}
		return nil
	})

	config := e.Admin(t)
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	get := func(path string) (int, string) {
		t.Helper()
		resp, err := client.Get(config.Host + "/apis/" + gv.String() + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	e.Eventually(t, "a response of the backend", envtest.WaitTimeout, func(context.Context) error {
		if status, body := get("/stay"); status != http.StatusOK {
			return fmt.Errorf("%d %s", status, body)
		}
		return nil
	})
	const want = "the backend attempted to redirect this request, which is not permitted"
	if status, body := get("/go"); status != http.StatusBadGateway || !strings.Contains(body, want) {
		t.Errorf("a path that redirects: %d %s, want 502 %s", status, body, want)
	}
	if n := target.Load(); n != 0 {
		t.Errorf("the target of the redirect was called %d times, want never", n)
	}
	if err := apiServices(t, e).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	discoveryHeals(t, e)
}

// newBackend starts a server with a certificate for the Service that accepts only the front
// proxy. It also returns its CA.
func newBackend(t *testing.T, e *envtest.Environment, service certs.Service,
	handler http.HandlerFunc) (*httptest.Server, []byte) {
	t.Helper()
	ca, err := certs.NewCA(certs.CAOptions{Name: service.Name, Usage: x509.ExtKeyUsageServerAuth,
		PermittedDNS: service.DNSNames()})
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := ca.IssueServing(certs.ServingOptions{DNSNames: service.DNSNames()})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(leaf.CertPEM, leaf.KeyPEM)
	if err != nil {
		t.Fatal(err)
	}
	backend := httptest.NewUnstartedServer(handler)
	backend.TLS = &tls.Config{
		Certificates: []tls.Certificate{pair},
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ClientCAs:    certs.Bundle{readCA(t, e, certs.FrontProxyCADir).Certificate}.Pool(),
		MinVersion:   tls.VersionTLS12,
	}
	backend.StartTLS()
	t.Cleanup(backend.Close)
	return backend, ca.CertPEM
}
