// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorfake "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/fake"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/cluster"
	"example.com/extension-apiserver/internal/cluster/clustertest"
)

// TestClockSkew: the skew is the difference to the header Date.
func TestClockSkew(t *testing.T) {
	c := clustertest.New(nil)
	c.Now = func() time.Time { return clustertest.Now.Add(7 * time.Minute) }
	if skew, err := c.ClockSkew(t.Context()); err != nil || skew != 7*time.Minute {
		t.Errorf("got %s (%v), want 7m", skew, err)
	}
}

func testSlice(namespace, service, name string, port int32,
	endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: service + "-" + name,
			Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		Ports: []discoveryv1.EndpointPort{{Name: new(name), Port: new(port)}}, Endpoints: endpoints,
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
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "https", Port: 443},
			{Name: "metrics", Port: 9090}}},
	}
	named := service.DeepCopy()
	named.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "widgets.example.com"}
	https := testSlice("demo", "widgets", "https", 6443, testEndpoint("10.0.0.2", new(false)),
		testEndpoint("10.0.0.1", nil))
	metrics := testSlice("demo", "widgets", "metrics", 9090, testEndpoint("10.0.0.1", nil))
	other := testSlice("demo", "gadgets", "https", 6443, testEndpoint("10.0.0.7", nil))
	again := testSlice("demo", "widgets", "https", 6443, testEndpoint("10.0.0.1", nil))
	again.Name = "again"
	// Two pods in a dual-stack cluster: a slice of each family, with unordered addresses.
	dual := func(family string, addresses ...string) *discoveryv1.EndpointSlice {
		slice := testSlice("demo", "widgets", "https", 6443)
		slice.Name, slice.AddressType = family, discoveryv1.AddressType(family)
		for i, address := range addresses {
			e := testEndpoint(address, nil)
			e.TargetRef.Name = fmt.Sprintf("pod-%d", i+1)
			slice.Endpoints = append(slice.Endpoints, e)
		}
		return slice
	}
	registered := []apiregistrationv1.APIService{clustertest.APIService("v1.g.example.com", nil)}
	one := cluster.Endpoint{Address: "10.0.0.1:6443", Ready: true, Pod: "pod-10.0.0.1"}
	two := cluster.Endpoint{Address: "10.0.0.2:6443", Pod: "pod-10.0.0.2"}
	ofAnother := clustertest.New(registered, named)
	ofAnother.Options = cluster.Options{EndpointAddresses: []string{"a:1"},
		EndpointsOf: &certs.Service{Name: "other", Namespace: "other"}}
	for name, tc := range map[string]struct {
		cluster *cluster.Cluster
		want    []cluster.Endpoint
	}{
		"the port of the APIService": {clustertest.New(registered, service, https, metrics, other, again),
			[]cluster.Endpoint{one, two}},
		"every port before registration": {clustertest.New(nil, service, https, metrics), []cluster.Endpoint{
			one, {Address: "10.0.0.1:9090", Ready: true, Pod: "pod-10.0.0.1"}, two,
		}},
		"each pod's addresses together": {clustertest.New(registered, service, dual("IPv4", "10.0.0.2", "10.0.0.1"),
			dual("IPv6", "fd00::2", "fd00::1")), []cluster.Endpoint{
			{Address: "10.0.0.2:6443", Ready: true, Pod: "pod-1"},
			{Address: "[fd00::2]:6443", Ready: true, Pod: "pod-1"},
			{Address: "10.0.0.1:6443", Ready: true, Pod: "pod-2"},
			{Address: "[fd00::1]:6443", Ready: true, Pod: "pod-2"},
		}},
		"a name": {clustertest.New(registered, named),
			[]cluster.Endpoint{{Address: "widgets.example.com:443", Ready: true}}},
		"addresses": {&cluster.Cluster{Options: cluster.Options{EndpointAddresses: []string{"a:1"}}},
			[]cluster.Endpoint{{Address: "a:1", Ready: true}}},
		"addresses of another": {ofAnother, []cluster.Endpoint{{Address: "widgets.example.com:443", Ready: true}}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := tc.cluster.Endpoints(t.Context(), clustertest.Service)
			if diff := cmp.Diff(tc.want, got); diff != "" || err != nil {
				t.Errorf("got %v; endpoints (-want +got):\n%s", err, diff)
			}
		})
	}
	if _, err := clustertest.New(nil).Endpoints(t.Context(), clustertest.Service); err == nil {
		t.Error("no Service: got no error")
	}
}

func TestKubeAPIServers(t *testing.T) {
	slice := testSlice("default", "kubernetes", "https", 6443, testEndpoint("10.0.0.2", nil),
		testEndpoint("fd00::1", nil))
	slice.Name = "kubernetes"
	got, err := clustertest.New(nil, slice).KubeAPIServers(t.Context())
	if diff := cmp.Diff([]string{"https://10.0.0.2:6443", "https://[fd00::1]:6443"}, got); diff != "" || err != nil {
		t.Errorf("got %v; URLs (-want +got):\n%s", err, diff)
	}
	if got, err := clustertest.New(nil).KubeAPIServers(t.Context()); err == nil {
		t.Errorf("no endpoints: got %q, want an error", got)
	}
	if got, err := (&cluster.Cluster{Options: cluster.Options{KubeAPIServerURLs: []string{"https://a"}}}).KubeAPIServers(t.Context()); err != nil || len(got) != 1 {
		t.Errorf("URLs given: got %q, %v", got, err)
	}
}

// TestIdentities: Identities counts Leases that were renewed within a minute.
func TestIdentities(t *testing.T) {
	lease := func(name, label string, age time.Duration) *coordinationv1.Lease {
		renewed := metav1.NewMicroTime(clustertest.Now.Add(-age))
		return &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name,
				Labels: map[string]string{"apiserver.kubernetes.io/identity": label}},
			Spec: coordinationv1.LeaseSpec{RenewTime: &renewed},
		}
	}
	c := clustertest.New(nil, lease("a", "kube-apiserver", 10*time.Second),
		lease("b", "kube-apiserver", 50*time.Second), lease("gone", "kube-apiserver", 2*time.Minute),
		lease("other", "extension-apiserver", 0))
	if n, err := c.Identities(t.Context()); n != 2 || err != nil {
		t.Errorf("got %d, %v; want 2", n, err)
	}
}

// TestServedCertificate: the verification result is that of kube-aggregator, and a rejected
// certificate is returned too.
func TestServedCertificate(t *testing.T) {
	ca, other := clustertest.NewCA(t, "serving-ca", x509.ExtKeyUsageServerAuth),
		clustertest.NewCA(t, "other-ca", x509.ExtKeyUsageServerAuth)
	right, wrong := clustertest.NewServing(t, ca, "widgets.demo.svc"), clustertest.NewServing(t, ca, "gadgets.demo.svc")
	for name, tc := range map[string]struct {
		pair  *certs.KeyPair
		trust certs.Bundle
		at    time.Time
		want  string
	}{
		"accepted":   {right, certs.Bundle{other.Certificate, ca.Certificate}, clustertest.Now, ""},
		"another CA": {right, certs.Bundle{other.Certificate}, clustertest.Now, "unknown authority"},
		"no CA":      {right, nil, clustertest.Now, "unknown authority"},
		"another name": {wrong, certs.Bundle{ca.Certificate}, clustertest.Now,
			"valid for gadgets.demo.svc, not widgets.demo.svc"},
		"expired": {right, certs.Bundle{ca.Certificate},
			clustertest.Now.Add(certs.LeafLifetime + time.Hour), "expired"},
	} {
		t.Run(name, func(t *testing.T) {
			c := &cluster.Cluster{Config: &rest.Config{}, Now: func() time.Time { return tc.at }}
			c.EndpointAddresses = []string{clustertest.ServeTLS(t, tc.pair, nil)}
			got, err := c.Served(t.Context(), clustertest.Service, tc.trust)
			if err != nil || len(got) != 1 || got[0].Leaf == nil || !got[0].Leaf.Equal(tc.pair.Certificate) {
				t.Fatalf("got %+v, %v; want the certificate", got, err)
			}
			if found := fmt.Sprint(got[0].Err); tc.want == "" && got[0].Err != nil ||
				!strings.Contains(found, tc.want) {
				t.Errorf("got error %s, want %q", found, tc.want)
			}
		})
	}
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	for _, address := range []string{"127.0.0.1:1", plain.Listener.Addr().String()} {
		c := &cluster.Cluster{Config: &rest.Config{}, Options: cluster.Options{EndpointAddresses: []string{address}}}
		if got, err := c.Served(t.Context(), clustertest.Service, nil); err != nil || len(got) != 1 ||
			got[0].Leaf != nil || got[0].Err == nil {
			t.Errorf("%s: got %+v, %v; want an error without a certificate", address, got, err)
		}
	}
}

// TestServedCertificateThroughProxy: the certificate of a proxy is never used as that of the
// endpoint, even if it would be valid.
func TestServedCertificateThroughProxy(t *testing.T) {
	ca := clustertest.NewCA(t, "serving-ca", x509.ExtKeyUsageServerAuth)
	proxy := &url.URL{Scheme: "https", Host: clustertest.ServeTLS(t,
		clustertest.NewServing(t, ca, "widgets.demo.svc"), nil)}
	c := &cluster.Cluster{Config: &rest.Config{Proxy: http.ProxyURL(proxy)},
		Options: cluster.Options{EndpointAddresses: []string{"127.0.0.1:1"}}}
	got, err := c.Served(t.Context(), clustertest.Service, certs.Bundle{ca.Certificate})
	if err != nil || len(got) != 1 || got[0].Leaf != nil ||
		!strings.Contains(fmt.Sprint(got[0].Err), "expected http:// or socks5://") {
		t.Errorf("got %+v, %v; want that the proxy is refused", got, err)
	}
}

// TestProbeFrontProxy checks the five results, the certificate and the user name.
func TestProbeFrontProxy(t *testing.T) {
	ca, proxyCA := clustertest.NewCA(t, "serving-ca", x509.ExtKeyUsageServerAuth),
		clustertest.NewCA(t, "front-proxy-ca", x509.ExtKeyUsageClientAuth)
	serving, proxy := clustertest.NewServing(t, ca, "widgets.demo.svc"),
		clustertest.NewProxy(t, proxyCA, certs.FrontProxyUser)
	for want, answer := range map[cluster.ProbeResult]func(user string) (int, string){
		cluster.Accepted:   func(user string) (int, string) { return 403, user },
		cluster.NotTrusted: func(string) (int, string) { return 401, "" },
		cluster.Anonymous:  func(string) (int, string) { return 403, "system:anonymous" },
		cluster.AsUser:     func(string) (int, string) { return 403, certs.FrontProxyUser },
		// A user other than the requested one, and a path that is open to all users.
		cluster.Inconclusive: func(string) (int, string) { return 403, "somebody" },
		"":                   nil,
	} {
		t.Run(string(want), func(t *testing.T) {
			if answer == nil {
				answer, want = func(string) (int, string) { return 404, "" }, cluster.Inconclusive
			}
			address := clustertest.ServeTLS(t, serving, func(w http.ResponseWriter, r *http.Request) {
				user := r.Header.Get("X-Remote-User")
				if len(r.TLS.PeerCertificates) != 1 || !r.TLS.PeerCertificates[0].Equal(proxy.Certificate) ||
					!strings.HasPrefix(r.URL.Path, "/certgen-probe-") || r.Host != "widgets.demo.svc" {
					t.Errorf("got %d certificates, path %s, host %s", len(r.TLS.PeerCertificates), r.URL.Path, r.Host)
				}
				status, name := answer(user)
				w.WriteHeader(status)
				err := json.NewEncoder(w).Encode(metav1.Status{Message: fmt.Sprintf(
					"forbidden: User %q cannot get path %q", name, r.URL.Path)})
				if err != nil {
					t.Error(err)
				}
			})
			c := &cluster.Cluster{Config: &rest.Config{}, Now: func() time.Time { return clustertest.Now }}
			got, err := c.ProbeFrontProxy(t.Context(), cluster.Endpoint{Address: address}, clustertest.Service,
				certs.Bundle{ca.Certificate}, proxy)
			if got != want || err != nil {
				t.Errorf("got %q, %v; want %s", got, err, want)
			}
			if got, err := c.ProbeFrontProxy(t.Context(), cluster.Endpoint{Address: address}, clustertest.Service, nil,
				proxy); err == nil {
				t.Errorf("a server that is not trusted: got %q, want an error", got)
			}
		})
	}
}

// TestCheckResponds: CheckResponds distinguishes an error response from no response.
func TestCheckResponds(t *testing.T) {
	a := clustertest.APIService("v1.g.example.com", nil)
	status := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/apis/g.example.com/v1" {
			t.Errorf("got path %s", r.URL.Path)
		}
		w.WriteHeader(status)
		fmt.Fprint(w, "service unavailable")
	}))
	c := &cluster.Cluster{Config: &rest.Config{}}
	if err := c.CheckResponds(t.Context(), server.URL, a); err != nil {
		t.Error(err)
	}
	for _, status = range []int{401, 403, 404, 500, 503} {
		if got, ok := errors.AsType[*cluster.StatusError](c.CheckResponds(t.Context(), server.URL, a)); !ok ||
			got.Status != status {
			t.Errorf("got %v, want status %d", got, status)
		}
	}
	server.Close()
	err := c.CheckResponds(context.Background(), server.URL, a)
	if _, answered := errors.AsType[*cluster.StatusError](err); err == nil || answered {
		t.Errorf("no listener: got %v, want an error without a response", err)
	}
}

// TestAggregatedServices: AggregatedServices returns each Service once and skips local
// APIServices.
func TestAggregatedServices(t *testing.T) {
	apiService := func(name, namespace, service string) *apiregistrationv1.APIService {
		a := &apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if service != "" {
			a.Spec.Service = &apiregistrationv1.ServiceReference{Namespace: namespace, Name: service}
		}
		return a
	}
	c := &cluster.Cluster{Aggregator: aggregatorfake.NewClientset(
		apiService("v1.b", "demo", "widgets"), apiService("v1.apps", "", ""), apiService("v2.b", "demo", "widgets"),
		apiService("v1.a", "demo", "metrics"),
	)}
	got, err := c.AggregatedServices(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []certs.Service{{Namespace: "demo", Name: "metrics"}, {Namespace: "demo", Name: "widgets"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Services (-want +got):\n%s", diff)
	}
}
