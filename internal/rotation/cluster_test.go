// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorfake "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/fake"

	"example.com/extension-apiserver/internal/certs"
)

// clock answers everything with its time.
type clock time.Time

// RoundTrip implements http.RoundTripper.
func (c clock) RoundTrip(req *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Date": {time.Time(c).UTC().Format(http.TimeFormat)}}, Body: http.NoBody, Request: req}, nil
}

// TestClockSkew compares with the header Date.
func TestClockSkew(t *testing.T) {
	c := fakeClients(nil)
	c.Now = func() time.Time { return liveNow.Add(7 * time.Minute) }
	if skew, err := c.ClockSkew(t.Context()); err != nil || skew != 7*time.Minute {
		t.Errorf("got %s (%v), want 7m", skew, err)
	}
	if _, err := c.Maintain(t.Context(), MaintainOptions{SecretOptions: SecretOptions{Service: liveService, Secret: "s", CASecret: "ca"}}); err == nil || !strings.Contains(err.Error(), "found it 7m0s ahead of") {
		t.Errorf("maintain: got %v, want that the clock is wrong", err)
	}
}

func fakeClients(apiServices []apiregistrationv1.APIService, core ...runtime.Object) *Cluster {
	var registered []runtime.Object
	for _, a := range apiServices {
		registered = append(registered, &a)
	}
	return &Cluster{
		Config: &rest.Config{Host: "https://kube-apiserver", Transport: clock(liveNow)}, Core: fake.NewClientset(core...), Aggregator: aggregatorfake.NewClientset(registered...),
		Now: func() time.Time { return liveNow },
	}
}

func testSlice(namespace, service, name string, port int32, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: service + "-" + name, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		Ports:      []discoveryv1.EndpointPort{{Name: new(name), Port: new(port)}}, Endpoints: endpoints,
	}
}

func testEndpoint(address string, ready *bool) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{
		Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: ready},
		TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: "pod-" + address},
	}
}

func TestEndpoints(t *testing.T) {
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: "widgets"},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "https", Port: 443}, {Name: "metrics", Port: 9090}}},
	}
	named := service.DeepCopy()
	named.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "widgets.example.com"}
	https := testSlice("demo", "widgets", "https", 6443, testEndpoint("10.0.0.2", new(false)), testEndpoint("10.0.0.1", nil))
	metrics := testSlice("demo", "widgets", "metrics", 9090, testEndpoint("10.0.0.1", nil))
	other := testSlice("demo", "gadgets", "https", 6443, testEndpoint("10.0.0.7", nil))
	again := testSlice("demo", "widgets", "https", 6443, testEndpoint("10.0.0.1", nil))
	again.Name = "again"
	registered := []apiregistrationv1.APIService{testAPIService("v1.g.example.com", nil)}
	one := Endpoint{Address: "10.0.0.1:6443", Ready: true, Pod: "pod-10.0.0.1"}
	two := Endpoint{Address: "10.0.0.2:6443", Pod: "pod-10.0.0.2"}
	for name, tc := range map[string]struct {
		cluster *Cluster
		want    []Endpoint
	}{
		"the port of the APIService": {fakeClients(registered, service, https, metrics, other, again), []Endpoint{one, two}},
		"every port before registration": {fakeClients(nil, service, https, metrics), []Endpoint{
			one, {Address: "10.0.0.1:9090", Ready: true, Pod: "pod-10.0.0.1"}, two,
		}},
		"a name":    {fakeClients(registered, named), []Endpoint{{Address: "widgets.example.com:443", Ready: true}}},
		"addresses": {&Cluster{EndpointAddresses: []string{"a:1"}}, []Endpoint{{Address: "a:1", Ready: true}}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := tc.cluster.Endpoints(t.Context(), liveService)
			if diff := cmp.Diff(tc.want, got); diff != "" || err != nil {
				t.Errorf("got %v; endpoints (-want +got):\n%s", err, diff)
			}
		})
	}
	if _, err := fakeClients(nil).Endpoints(t.Context(), liveService); err == nil {
		t.Error("no Service: got no error")
	}
}

func TestKubeAPIServers(t *testing.T) {
	slice := testSlice("default", "kubernetes", "https", 6443, testEndpoint("10.0.0.2", nil), testEndpoint("fd00::1", nil))
	slice.Name = "kubernetes"
	got, err := fakeClients(nil, slice).KubeAPIServers(t.Context())
	if diff := cmp.Diff([]string{"https://10.0.0.2:6443", "https://[fd00::1]:6443"}, got); diff != "" || err != nil {
		t.Errorf("got %v; URLs (-want +got):\n%s", err, diff)
	}
	if got, err := fakeClients(nil).KubeAPIServers(t.Context()); err == nil {
		t.Errorf("no endpoints: got %q, want an error", got)
	}
	if got, err := (&Cluster{KubeAPIServerURLs: []string{"https://a"}}).KubeAPIServers(t.Context()); err != nil || len(got) != 1 {
		t.Errorf("URLs given: got %q, %v", got, err)
	}
}

// TestIdentities counts those that were renewed within a minute.
func TestIdentities(t *testing.T) {
	lease := func(name, label string, age time.Duration) *coordinationv1.Lease {
		renewed := metav1.NewMicroTime(liveNow.Add(-age))
		return &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name, Labels: map[string]string{"apiserver.kubernetes.io/identity": label}},
			Spec:       coordinationv1.LeaseSpec{RenewTime: &renewed},
		}
	}
	c := fakeClients(nil, lease("a", "kube-apiserver", 10*time.Second), lease("b", "kube-apiserver", 50*time.Second), lease("gone", "kube-apiserver", 2*time.Minute),
		lease("other", "extension-apiserver", 0))
	if n, err := c.Identities(t.Context()); n != 2 || err != nil {
		t.Errorf("got %d, %v; want 2", n, err)
	}
}

// serveTLS serves with the pair and returns the address. Each of asked is told the name that a client asks for.
func serveTLS(t *testing.T, pair *certs.KeyPair, handler http.HandlerFunc, asked ...func(name string)) string {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // refused handshakes are what is tested
	server.TLS = &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{pair.Certificate.Raw}, PrivateKey: pair.Key}},
		ClientAuth:   tls.RequestClientCert, MinVersion: tls.VersionTLS12,
	}
	server.TLS.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		for _, tell := range asked {
			tell(hello.ServerName)
		}
		return nil, nil
	}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// TestServed: the verdict is kube-aggregator's, and a refused certificate is seen all the same.
func TestServed(t *testing.T) {
	ca, other := newTestCA(t, "serving-ca", x509.ExtKeyUsageServerAuth), newTestCA(t, "other-ca", x509.ExtKeyUsageServerAuth)
	right, wrong := newTestServing(t, ca, "widgets.demo.svc"), newTestServing(t, ca, "gadgets.demo.svc")
	for name, tc := range map[string]struct {
		pair  *certs.KeyPair
		trust certs.Bundle
		at    time.Time
		want  string
	}{
		"accepted":     {right, certs.Bundle{other.Certificate, ca.Certificate}, liveNow, ""},
		"another CA":   {right, certs.Bundle{other.Certificate}, liveNow, "unknown authority"},
		"no CA":        {right, nil, liveNow, "unknown authority"},
		"another name": {wrong, certs.Bundle{ca.Certificate}, liveNow, "valid for gadgets.demo.svc, not widgets.demo.svc"},
		"expired":      {right, certs.Bundle{ca.Certificate}, liveNow.Add(certs.LeafLifetime + time.Hour), "expired"},
	} {
		t.Run(name, func(t *testing.T) {
			c := &Cluster{Config: &rest.Config{}, EndpointAddresses: []string{serveTLS(t, tc.pair, nil)}, Now: func() time.Time { return tc.at }}
			got, err := c.Served(t.Context(), liveService, tc.trust)
			if err != nil || len(got) != 1 || got[0].Leaf == nil || !got[0].Leaf.Equal(tc.pair.Certificate) {
				t.Fatalf("got %+v, %v; want the certificate", got, err)
			}
			if verdict := fmt.Sprint(got[0].Verdict); tc.want == "" && got[0].Verdict != nil || !strings.Contains(verdict, tc.want) {
				t.Errorf("got verdict %s, want %q", verdict, tc.want)
			}
		})
	}
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	for _, address := range []string{"127.0.0.1:1", plain.Listener.Addr().String()} {
		c := &Cluster{Config: &rest.Config{}, EndpointAddresses: []string{address}}
		if got, err := c.Served(t.Context(), liveService, nil); err != nil || len(got) != 1 || got[0].Leaf != nil || got[0].Verdict == nil {
			t.Errorf("%s: got %+v, %v; want a verdict without a certificate", address, got, err)
		}
	}
}

// TestProbeFrontProxy: the five answers, with the certificate sent and the user named.
func TestProbeFrontProxy(t *testing.T) {
	ca, proxyCA := newTestCA(t, "serving-ca", x509.ExtKeyUsageServerAuth), newTestCA(t, "front-proxy-ca", x509.ExtKeyUsageClientAuth)
	serving, proxy := newTestServing(t, ca, "widgets.demo.svc"), newTestProxy(t, proxyCA, certs.FrontProxyUser)
	for want, answer := range map[ProbeResult]func(user string) (int, string){
		Believed:   func(user string) (int, string) { return 403, user },
		NotTrusted: func(string) (int, string) { return 401, "" },
		Anonymous:  func(string) (int, string) { return 403, "system:anonymous" },
		AsUser:     func(string) (int, string) { return 403, certs.FrontProxyUser },
		// Another user than the one named, and a path that is open to all.
		Inconclusive: func(string) (int, string) { return 403, "somebody" },
		"":           nil,
	} {
		t.Run(string(want), func(t *testing.T) {
			if answer == nil {
				answer, want = func(string) (int, string) { return 404, "" }, Inconclusive
			}
			address := serveTLS(t, serving, func(w http.ResponseWriter, r *http.Request) {
				user := r.Header.Get("X-Remote-User")
				if len(r.TLS.PeerCertificates) != 1 || !r.TLS.PeerCertificates[0].Equal(proxy.Certificate) || !strings.HasPrefix(r.URL.Path, "/certgen-probe-") || r.Host != "widgets.demo.svc" {
					t.Errorf("got %d certificates, path %s, host %s", len(r.TLS.PeerCertificates), r.URL.Path, r.Host)
				}
				status, name := answer(user)
				w.WriteHeader(status)
				err := json.NewEncoder(w).Encode(metav1.Status{Message: fmt.Sprintf("forbidden: User %q cannot get path %q", name, r.URL.Path)})
				if err != nil {
					t.Error(err)
				}
			})
			c := &Cluster{Config: &rest.Config{}, Now: func() time.Time { return liveNow }}
			got, err := c.ProbeFrontProxy(t.Context(), Endpoint{Address: address}, liveService, certs.Bundle{ca.Certificate}, proxy)
			if got != want || err != nil {
				t.Errorf("got %q, %v; want %s", got, err, want)
			}
			if got, err := c.ProbeFrontProxy(t.Context(), Endpoint{Address: address}, liveService, nil, proxy); err == nil {
				t.Errorf("a server that is not trusted: got %q, want an error", got)
			}
		})
	}
}

// TestAnswers: an answer of another status is told from none.
func TestAnswers(t *testing.T) {
	a := testAPIService("v1.g.example.com", nil)
	status := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/apis/g.example.com/v1" {
			t.Errorf("got path %s", r.URL.Path)
		}
		w.WriteHeader(status)
		fmt.Fprint(w, "service unavailable")
	}))
	c := &Cluster{Config: &rest.Config{}}
	if err := c.Answers(t.Context(), server.URL, a); err != nil {
		t.Error(err)
	}
	for _, status = range []int{401, 403, 404, 500, 503} {
		if got := statusError(c.Answers(t.Context(), server.URL, a)); got == nil || got.Status != status {
			t.Errorf("got %v, want status %d", got, status)
		}
	}
	server.Close()
	if err := c.Answers(context.Background(), server.URL, a); err == nil || statusError(err) != nil {
		t.Errorf("nobody listens: got %v, want an error that is no answer", err)
	}
}
