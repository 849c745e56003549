// SPDX-License-Identifier: Apache-2.0

package authentication

import (
	"context"
	"crypto/x509"
	"fmt"
	"net/http"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"

	"example.com/extension-apiserver/internal/frontproxy"
)

// following returns the Sources of a server: the library's controllers and Trust follow the same
// ConfigMap.
func following(t *testing.T, client kubernetes.Interface) Sources {
	t.Helper()
	caOf := func(key string) dynamiccertificates.CAContentProvider {
		ca, err := dynamiccertificates.NewDynamicCAFromConfigMapController("test", metav1.NamespaceSystem,
			frontproxy.ConfigMapName, key, client)
		if err != nil {
			t.Fatal(err)
		}
		go ca.Run(t.Context(), 1)
		return ca
	}
	headers := headerrequest.NewRequestHeaderAuthRequestController(frontproxy.ConfigMapName,
		metav1.NamespaceSystem, client,
		frontproxy.UsernameHeadersKey, frontproxy.UIDHeadersKey, frontproxy.GroupHeadersKey,
		frontproxy.ExtraHeaderPrefixesKey, frontproxy.AllowedNamesKey)
	go headers.Run(t.Context(), 1)
	trust, err := NewTrust(client, nil)
	if err != nil {
		t.Fatal(err)
	}
	go trust.Run(t.Context())
	return Sources{
		RequestHeader: &authenticatorfactory.RequestHeaderConfig{
			UsernameHeaders:     headerrequest.StringSliceProviderFunc(headers.UsernameHeaders),
			UIDHeaders:          headerrequest.StringSliceProviderFunc(headers.UIDHeaders),
			GroupHeaders:        headerrequest.StringSliceProviderFunc(headers.GroupHeaders),
			ExtraHeaderPrefixes: headerrequest.StringSliceProviderFunc(headers.ExtraHeaderPrefixes),
			AllowedClientNames:  headerrequest.StringSliceProviderFunc(headers.AllowedClientNames),
			CAContentProvider:   caOf(frontproxy.CAKey),
		},
		ClientCA: caOf(frontproxy.ClientCAKey),
		Status:   trust.Status,
	}
}

// TestS12MalformedKey checks that the server rejects the front proxy after an update that revokes
// its name and has a typo in another key. The library rejects such an update as a whole, and
// continues to trust the name.
func TestS12MalformedKey(t *testing.T) {
	proxies, users := newCA(t, "front-proxy-ca", x509.ExtKeyUsageClientAuth),
		newCA(t, "client-ca", x509.ExtKeyUsageClientAuth)
	proxy := issueClient(t, proxies, "front-proxy-client")
	for _, key := range []string{
		frontproxy.UsernameHeadersKey, frontproxy.UIDHeadersKey, frontproxy.GroupHeadersKey,
		frontproxy.ExtraHeaderPrefixesKey, frontproxy.AllowedNamesKey, frontproxy.CAKey, frontproxy.ClientCAKey,
	} {
		t.Run(key, func(t *testing.T) {
			client := fake.NewClientset(published(proxies, users))
			src := following(t, client)
			s := newServer(t, src)
			becomes := func(what string, trusted bool) {
				t.Helper()
				var last string
				if err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, 30*time.Second, true,
					func(context.Context) (bool, error) {
						got := s.get(t, "/apis", proxy, http.Header{"X-Remote-User": {"ann"}})
						ready := src.Ready()
						last = fmt.Sprintf("user %v, refused %q, ready %v", got.User, got.Refused, ready)
						return (got.Refused == "") == trusted && (ready == nil) == trusted, nil
					}); err != nil {
					t.Fatalf("%s: got %s; want trusted and ready: %t", what, last, trusted)
				}
			}
			becomes("the ConfigMap as published", true)
			cm := published(proxies, users)
			cm.Data[frontproxy.AllowedNamesKey] = `["another-name"]`
			cm.Data[key] = `["typo`
			if _, err := client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Update(t.Context(), cm,
				metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			becomes("the name revoked, with a typo", false)
			if names := src.RequestHeader.AllowedClientNames.Value(); key == frontproxy.GroupHeadersKey &&
				names[0] != "front-proxy-client" {
				t.Errorf("the library trusts %q: it does not keep old values any more, so this test proves nothing",
					names)
			}
			if _, err := client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Update(t.Context(),
				published(proxies, users), metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			becomes("the ConfigMap repaired", true)
		})
	}
}
