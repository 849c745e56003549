// SPDX-License-Identifier: Apache-2.0

// Package clustertest contains fixtures for the tests of internal/cluster and the packages below
// it, and of internal/rotation.
package clustertest

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorfake "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/fake"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/cluster"
)

// RenamedPEM returns another certificate for the key of ca, with a different common name.
func RenamedPEM(t *testing.T, ca *certs.CA, commonName string) []byte {
	t.Helper()
	template := *ca.Certificate
	template.SerialNumber, template.RawSubject = big.NewInt(7), nil
	template.Subject.CommonName, template.Subject.Names = commonName, nil
	return create(t, &template, &template, ca, ca)
}

// SignedPEM returns a certificate of ca that another CA signed.
func SignedPEM(t *testing.T, ca, by *certs.CA) []byte {
	t.Helper()
	return create(t, ca.Certificate, by.Certificate, ca, by)
}

func create(t *testing.T, template, parent *x509.Certificate, subject, signer *certs.CA) []byte {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, subject.Key.Public(), signer.Key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

var (
	// Service is the Service of all fixtures.
	Service = certs.Service{Name: "widgets", Namespace: "demo"}
	// Now is the creation time of all fixtures.
	Now = time.Date(2026, 11, 21, 6, 0, 0, 0, time.UTC)
)

// NewCA returns a CA that was created at Now.
func NewCA(t *testing.T, name string, usage x509.ExtKeyUsage) *certs.CA {
	t.Helper()
	ca, err := certs.NewCA(certs.CAOptions{Name: name, Usage: usage, Now: func() time.Time { return Now }})
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

// NewServing returns a serving key pair of the CA.
func NewServing(t *testing.T, ca *certs.CA, names ...string) *certs.KeyPair {
	t.Helper()
	pair, err := ca.IssueServing(certs.ServingOptions{DNSNames: names})
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// NewProxy returns a front-proxy key pair of the CA.
func NewProxy(t *testing.T, ca *certs.CA, user string) *certs.KeyPair {
	t.Helper()
	pair, err := ca.IssueClient(certs.ClientOptions{User: user})
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// APIService returns an APIService with the given name, such as v1.g.example.com, and the
// Service as its backend.
func APIService(name string, caBundle []byte) apiregistrationv1.APIService {
	version, group, _ := strings.Cut(name, ".")
	return apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: "uid-of-" + "x", ResourceVersion: "7"},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: group, Version: version, CABundle: caBundle,
			Service: &apiregistrationv1.ServiceReference{Name: Service.Name, Namespace: Service.Namespace},
		},
		Status: apiregistrationv1.APIServiceStatus{Conditions: []apiregistrationv1.APIServiceCondition{
			{Type: apiregistrationv1.Available, Status: apiregistrationv1.ConditionTrue},
		}},
	}
}

// Clock is a transport whose responses contain its time in the header Date.
type Clock time.Time

// RoundTrip implements http.RoundTripper.
func (c Clock) RoundTrip(req *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Date": {time.Time(c).UTC().Format(
		http.TimeFormat)}}, Body: http.NoBody, Request: req}, nil
}

// New returns a cluster with fake clients.
func New(apiServices []apiregistrationv1.APIService, core ...runtime.Object) *cluster.Cluster {
	var registered []runtime.Object
	for _, a := range apiServices {
		registered = append(registered, &a)
	}
	return &cluster.Cluster{
		Config: &rest.Config{Host: "https://kube-apiserver", Transport: Clock(Now)}, Core: fake.NewClientset(core...),
		Aggregator: aggregatorfake.NewClientset(registered...),
		Now:        func() time.Time { return Now },
	}
}

// ServeTLS starts a server with the key pair and returns its address. It calls each of asked
// with the server name of each client.
func ServeTLS(t *testing.T, pair *certs.KeyPair, handler http.HandlerFunc, onServerName ...func(name string)) string {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // rejected handshakes are expected
	server.TLS = &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{pair.Certificate.Raw}, PrivateKey: pair.Key}},
		ClientAuth:   tls.RequestClientCert, MinVersion: tls.VersionTLS12,
	}
	server.TLS.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		for _, callback := range onServerName {
			callback(hello.ServerName)
		}
		return nil, nil
	}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// OwnedBy adds an owner of the caBundle.
func OwnedBy(a apiregistrationv1.APIService, manager string,
	operation metav1.ManagedFieldsOperationType) apiregistrationv1.APIService {
	a.ManagedFields = append(a.ManagedFields, metav1.ManagedFieldsEntry{
		Manager: manager, Operation: operation, APIVersion: apiregistrationv1.SchemeGroupVersion.String(),
		FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:caBundle":{},"f:group":{}}}`),
	})
	return a
}
