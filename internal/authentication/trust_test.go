// SPDX-License-Identifier: Apache-2.0

package authentication

import (
	"context"
	"crypto/x509"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/fake"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/frontproxy"
)

// published returns the ConfigMap as kube-apiserver creates it.
func published(proxies, users *certs.CA) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: frontproxy.Namespace,
		Name: frontproxy.ConfigMapName}, Data: map[string]string{
		frontproxy.ClientCAKey:            string(certs.Bundle{users.Certificate}.PEM()),
		frontproxy.CAKey:                  string(certs.Bundle{proxies.Certificate}.PEM()),
		frontproxy.AllowedNamesKey:        `["front-proxy-client"]`,
		frontproxy.UsernameHeadersKey:     `["X-Remote-User"]`,
		frontproxy.GroupHeadersKey:        `["X-Remote-Group"]`,
		frontproxy.ExtraHeaderPrefixesKey: `["X-Remote-Extra-"]`,
	}}
}

// TestS11ToleratedTrust checks that trust that lets clients other than the front proxy name any
// user is rejected, unless it is tolerated by name. The error names the flag for that. Nothing else
// can be tolerated.
func TestS11ToleratedTrust(t *testing.T) {
	proxies, users := newCA(t, "front-proxy-ca", x509.ExtKeyUsageClientAuth),
		newCA(t, "client-ca", x509.ExtKeyUsageClientAuth)
	set := func(key, value string) func(*corev1.ConfigMap) {
		return func(cm *corev1.ConfigMap) { cm.Data[key] = value }
	}
	shared := set(frontproxy.ClientCAKey, string(certs.Bundle{users.Certificate, proxies.Certificate}.PEM()))
	anyName := set(frontproxy.AllowedNamesKey, "[]")
	for _, tc := range []struct {
		name           string
		change         func(*corev1.ConfigMap)
		tolerated      []string
		proxy, clients string
	}{
		{"as it should be", func(*corev1.ConfigMap) {}, nil, "", ""},
		{"shared CA", shared, nil, "share", ""},
		{"shared CA, the flag", shared, nil, "or accept it with --front-proxy-tolerate=SharedCA", ""},
		{"shared CA, tolerated", shared, []string{frontproxy.SharedCA}, "", ""},
		{"shared CA, something else tolerated", shared, []string{frontproxy.AnyName}, "share", ""},
		{"any name", anyName, nil,
			"ConfigMap kube-system/extension-apiserver-authentication has an empty requestheader-allowed-names", ""},
		{"any name, the flag", anyName, nil, "or accept it with --front-proxy-tolerate=AnyName", ""},
		{"any name, tolerated", anyName, []string{frontproxy.AnyName}, "", ""},
		{"names malformed", set(frontproxy.AllowedNamesKey, "front-proxy-client"), frontproxy.Weaknesses,
			"expected a list of strings", ""},
		{"no CA", set(frontproxy.CAKey, ""), frontproxy.Weaknesses,
			"the aggregation layer of this cluster is not configured; set kube-apiserver's", ""},
		{"client CA malformed", set(frontproxy.ClientCAKey, "PEM"), frontproxy.Weaknesses, "malformed client-ca-file",
			"malformed client-ca-file"},
		{"no client CA", set(frontproxy.ClientCAKey, ""), nil, "", "has no client-ca-file"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cm := published(proxies, users)
			tc.change(cm)
			s := Evaluate(cm, sets.New(tc.tolerated...))
			for what, pair := range map[string]struct {
				err  error
				want string
			}{"front proxy": {s.FrontProxy, tc.proxy}, "clients": {s.Clients, tc.clients}} {
				if (pair.err == nil) != (pair.want == "") || (pair.err != nil &&
					!strings.Contains(pair.err.Error(), pair.want)) {
					t.Errorf("%s: got %v, want %q", what, pair.err, pair.want)
				}
			}
		})
	}
	if s := Evaluate(nil, sets.New(frontproxy.Weaknesses...)); s.FrontProxy == nil || s.Clients == nil {
		t.Errorf("without the ConfigMap: got %+v, want neither trusted", s)
	}
}

// TestS12Trust checks that trust follows the ConfigMap and ends with it, and that nothing is
// trusted before it has been read.
func TestS12Trust(t *testing.T) {
	cm := published(newCA(t, "front-proxy-ca", x509.ExtKeyUsageClientAuth),
		newCA(t, "client-ca", x509.ExtKeyUsageClientAuth))
	client := fake.NewClientset(cm)
	trust, err := NewTrust(client, nil)
	if err != nil {
		t.Fatal(err)
	}
	if s := trust.Status(); s.FrontProxy == nil || s.Clients == nil {
		t.Errorf("before the ConfigMap was read: got %+v, want neither trusted", s)
	}
	go trust.Run(t.Context())
	becomes := func(what string, trusted bool) {
		t.Helper()
		if err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, 30*time.Second, true,
			func(context.Context) (bool, error) {
				s := trust.Status()
				return (s.FrontProxy == nil) == trusted && (s.Clients == nil) == trusted, nil
			}); err != nil {
			t.Fatalf("%s: got %+v, want trusted: %t", what, trust.Status(), trusted)
		}
	}
	configMaps := client.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	becomes("read", true)
	if err := configMaps.Delete(t.Context(), frontproxy.ConfigMapName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	becomes("deleted", false)
	if _, err := configMaps.Create(t.Context(), cm, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	becomes("created again", true)
}

// TestS12WithoutConfigMap checks that valid certificates are rejected without the ConfigMap, and
// that health reports the reason.
func TestS12WithoutConfigMap(t *testing.T) {
	proxies, users := newCA(t, "front-proxy-ca", x509.ExtKeyUsageClientAuth),
		newCA(t, "client-ca", x509.ExtKeyUsageClientAuth)
	src := sources(t, proxies, users)
	var status Status
	src.Status = func() Status { return status }
	s := newServer(t, src)
	proxy, alice := issueClient(t, proxies, "front-proxy-client"), issueClient(t, users, "alice")
	bob := http.Header{"X-Remote-User": {"bob"}}
	token := http.Header{"Authorization": {"Bearer good"}}
	for _, gone := range []bool{false, true, false} {
		status = Status{}
		if gone {
			status = Evaluate(nil, nil)
		}
		for name, got := range map[string]string{
			"front proxy": s.get(t, "/apis", proxy, bob).Refused, "user": s.get(t, "/apis", alice, nil).Refused,
		} {
			if refused := strings.Contains(got, "does not exist"); refused != gone {
				t.Errorf("%s while the ConfigMap is gone: %t: refused %q", name, gone, got)
			}
		}
		// kube-apiserver authenticates tokens itself.
		if got := s.get(t, "/apis", nil, token).Refused; got != "" {
			t.Errorf("token: refused %q, want accepted", got)
		}
		if err := src.Ready(); (err != nil) != gone || !errors.Is(err, status.FrontProxy) {
			t.Errorf("ready while the ConfigMap is gone: %t: got %v, want %v", gone, err, status.FrontProxy)
		}
	}
}

// TestS18NoTokens checks that a server that accepts no tokens does not send TokenReviews.
func TestS18NoTokens(t *testing.T) {
	ca := newCA(t, "ca", x509.ExtKeyUsageClientAuth)
	src := sources(t, ca, newCA(t, "client-ca", x509.ExtKeyUsageClientAuth))
	token := http.Header{"Authorization": {"Bearer good"}}
	if got := newServer(t, src).get(t, "/apis", nil, token); got.Refused != "" {
		t.Fatalf("token: refused %q, want accepted", got.Refused)
	}
	src.TokenReviews = nil
	if got := newServer(t, src).get(t, "/apis", nil, token); got.Refused != "none" {
		t.Errorf("token where none are taken: got %+v, want taken for no credentials", got)
	}
}
