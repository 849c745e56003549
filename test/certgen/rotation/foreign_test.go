// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/cluster/apply"
	"example.com/extension-apiserver/internal/rotation"
	"example.com/extension-apiserver/pkg/envtest"
)

var foreignVersion = schema.GroupVersion{Group: "foreign.example.com", Version: "v1"}

// foreignCA is a CA in the system roots of kube-apiserver, which verifies APIs without a caBundle
// with the CAs in SSL_CERT_FILE.
var foreignCA *certs.CA

func newForeignCA(path string) (*certs.CA, error) {
	ca, err := certs.NewCA(certs.CAOptions{Name: "foreign", Usage: x509.ExtKeyUsageServerAuth})
	if err != nil {
		return nil, err
	}
	return ca, errors.Join(os.WriteFile(path, ca.CertPEM, 0o600), os.Setenv("SSL_CERT_FILE", path))
}

// foreign is a third-party API without a caBundle, as that of metrics-server may be. It responds.
type foreign struct {
	service certs.Service
	shown   atomic.Pointer[x509.Certificate] // the last one that the front proxy presented
}

// registerForeign serves the API beside the first extension API server, and registers it.
func registerForeign(t *testing.T, c apply.Client) *foreign {
	t.Helper()
	const port = 8443
	f := &foreign{service: certs.Service{Name: "foreign", Namespace: metav1.NamespaceDefault}}
	serving, err := foreignCA.IssueServing(certs.ServingOptions{DNSNames: f.service.DNSNames()})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := shared.Servers[0].Listen(port)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{
		Handler: f, ReadHeaderTimeout: envtest.WaitTimeout, TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12,
			ClientAuth:   tls.RequestClientCert,
			Certificates: []tls.Certificate{{Certificate: [][]byte{serving.Certificate.Raw}, PrivateKey: serving.Key}}},
	}
	go func() { _ = server.ServeTLS(listener, "", "") }()
	t.Cleanup(func() { _ = server.Close() })

	client, err := shared.AdminClient()
	if err != nil {
		t.Fatal(err)
	}
	host, _, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	name, number, ready := "https", int32(port), true
	object := metav1.ObjectMeta{Name: f.service.Name, Namespace: f.service.Namespace,
		Labels: map[string]string{discoveryv1.LabelServiceName: f.service.Name}}
	if _, err := client.CoreV1().Services(f.service.Namespace).Create(t.Context(), &corev1.Service{
		ObjectMeta: object, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: name, Port: 443}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.DiscoveryV1().EndpointSlices(f.service.Namespace).Create(t.Context(),
		&discoveryv1.EndpointSlice{
			ObjectMeta: object, AddressType: discoveryv1.AddressTypeIPv4,
			Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &number}},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{host},
				Conditions: discoveryv1.EndpointConditions{Ready: &ready}}},
		}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.Background()
		if err := errors.Join(client.CoreV1().Services(f.service.Namespace).Delete(ctx, object.Name,
			metav1.DeleteOptions{}),
			client.DiscoveryV1().EndpointSlices(f.service.Namespace).Delete(ctx, object.Name,
				metav1.DeleteOptions{})); err != nil {
			t.Error(err)
		}
	})
	made := register(t, c, foreignVersion, f.service)
	shared.Eventually(t, "the third-party API to respond", envtest.WaitTimeout, func(ctx context.Context) error {
		kubeAPIServers, err := c.KubeAPIServers(ctx)
		for _, k := range kubeAPIServers {
			err = errors.Join(err, c.CheckResponds(ctx, k, *made))
		}
		return err
	})
	return f
}

// ServeHTTP serves discovery to clients with a certificate, such as kube-aggregator.
func (f *foreign) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if len(r.TLS.PeerCertificates) == 0 {
		http.Error(w, "no certificate", http.StatusUnauthorized)
		return
	}
	f.shown.Store(r.TLS.PeerCertificates[0])
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(metav1.APIResourceList{
		TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: foreignVersion.String(),
	})
}

// checkSeen checks that the rotation checked this API by its responses, and skipped the broken
// one.
func (f *foreign) checkSeen(t *testing.T) {
	t.Helper()
	state, err := rotation.ReadState(certs.Dir(shared.PKI()), rotation.FrontProxyCA)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]rotation.Check{"default/broken": rotation.CheckNone, "default/foreign": rotation.CheckByResponse}
	if diff := cmp.Diff(want, state.Others); diff != "" {
		t.Errorf("looks at other APIs (-want +got):\n%s", diff)
	}
	if now := certificate(t, filepath.Join(shared.PKI(), certs.FrontProxyClientDir)); !now.Equal(f.shown.Load()) {
		t.Error("the front proxy shows another certificate than the new one to the API of others")
	}
}

// register registers an API without a caBundle until the test ends.
func register(t *testing.T, c apply.Client, version schema.GroupVersion,
	service certs.Service) *apiregistrationv1.APIService {
	t.Helper()
	apiServices := c.Aggregator.ApiregistrationV1().APIServices()
	made, err := apiServices.Create(t.Context(), &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: version.Version + "." + version.Group},
		Spec: apiregistrationv1.APIServiceSpec{Group: version.Group, Version: version.Version,
			GroupPriorityMinimum: 100, VersionPriority: 100,
			Service: &apiregistrationv1.ServiceReference{Namespace: service.Namespace, Name: service.Name}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := apiServices.Delete(context.Background(), made.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	return made
}
