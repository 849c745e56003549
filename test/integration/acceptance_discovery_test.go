// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/sample/apis/workshop/install"
)

// unprivilegedHeaders holds the front-proxy headers of an unprivileged user. Discovery is open to
// every authenticated user.
var unprivilegedHeaders = http.Header{"X-Remote-User": {"somebody"}, "X-Remote-Group": {"system:authenticated"}}

// TestDirectDiscovery checks the discovery of the extension API server itself: one group, its
// versions in the configured order, and the kinds of each version. The discovery of the whole
// cluster, which clients use, has the same content.
func TestDirectDiscovery(t *testing.T) {
	proxy := issue(t, readCA(t, shared, certs.FrontProxyCADir), certs.FrontProxyUser)
	read := func(path string, into any) {
		t.Helper()
		status, body := directRequest(t, shared, shared.Servers[0].URL, proxy, http.MethodGet, path, unprivilegedHeaders, nil)
		if err := json.Unmarshal([]byte(body), into); err != nil || status != http.StatusOK {
			t.Fatalf("GET %s: %d %s (%v)", path, status, body, err)
		}
	}
	group := gadgetCase.resource.Group
	want := metav1.APIGroup{Name: group}
	for _, gv := range install.GroupVersions() {
		want.Versions = append(want.Versions, metav1.GroupVersionForDiscovery{GroupVersion: gv.String(),
			Version: gv.Version})
	}
	want.PreferredVersion = want.Versions[0]
	var groups metav1.APIGroupList
	read("/apis", &groups)
	// The address is for clients that connect without kube-apiserver.
	if diff := cmp.Diff([]metav1.APIGroup{want}, groups.Groups,
		cmpopts.IgnoreFields(metav1.APIGroup{}, "ServerAddressByClientCIDRs")); diff != "" {
		t.Errorf("GET /apis (-want +got):\n%s", diff)
	}
	var got metav1.APIGroup
	read("/apis/"+group, &got)
	want.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "APIGroup"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("GET /apis/%s (-want +got):\n%s", group, diff)
	}

	_, everything, err := shared.Client(t).Discovery().ServerGroupsAndResources()
	if err != nil {
		t.Fatalf("discovery of the whole cluster: %v", err)
	}
	for _, gv := range install.GroupVersions() {
		var list metav1.APIResourceList
		read("/apis/"+gv.String(), &list)
		if list.GroupVersion != gv.String() {
			t.Errorf("GET /apis/%s: groupVersion %q", gv, list.GroupVersion)
		}
		for _, cluster := range everything {
			if cluster.GroupVersion == gv.String() {
				if diff := cmp.Diff(essentials(&list), essentials(cluster)); diff != "" {
					t.Errorf("discovery of %s (-our server +kube-apiserver):\n%s", gv, diff)
				}
			}
		}
		if gv != gadgetCase.resource.GroupVersion() {
			continue
		}
		namespaced, got := map[string]bool{"identityreviews": false, "parts": false}, map[string]bool{}
		for _, k := range kindCases {
			namespaced[k.resource.Resource] = k.namespaced
		}
		for _, r := range list.APIResources {
			if !strings.Contains(r.Name, "/") {
				got[r.Name] = r.Namespaced
			}
		}
		if diff := cmp.Diff(namespaced, got); diff != "" {
			t.Errorf("resources of %s and whether they are in namespaces (-want +got):\n%s", gv, diff)
		}
	}
}

// essentials returns the fields of discovery that clients use, by resource, as far as both
// discovery formats contain them.
func essentials(list *metav1.APIResourceList) map[string]metav1.APIResource {
	all := map[string]metav1.APIResource{}
	for _, r := range list.APIResources {
		all[r.Name] = metav1.APIResource{Kind: r.Kind, Namespaced: r.Namespaced, Verbs: r.Verbs,
			ShortNames: r.ShortNames, Categories: r.Categories}
	}
	return all
}

// TestDiscoveryETag checks that a client that already has the discovery document gets a 304
// response instead of the document. kube-apiserver sends such a request every minute.
func TestDiscoveryETag(t *testing.T) {
	proxy := issue(t, readCA(t, shared, certs.FrontProxyCADir), certs.FrontProxyUser)
	direct := shared.Servers[0].Config(shared)
	direct.CertData, direct.KeyData = proxy.CertPEM, proxy.KeyPEM
	for name, tc := range map[string]struct {
		config  *rest.Config
		headers http.Header
	}{
		"our server":     {direct, unprivilegedHeaders},
		"kube-apiserver": {shared.Admin(t), nil},
	} {
		t.Run(name, func(t *testing.T) {
			client, err := rest.HTTPClientFor(tc.config)
			if err != nil {
				t.Fatal(err)
			}
			get := func(etag string) (int, http.Header) {
				t.Helper()
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, tc.config.Host+"/apis", nil)
				if err != nil {
					t.Fatal(err)
				}
				if tc.headers != nil {
					req.Header = tc.headers.Clone()
				}
				req.Header.Set("Accept", discovery.AcceptV2)
				if etag != "" {
					req.Header.Set("If-None-Match", etag)
				}
				resp, err := client.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				if err := resp.Body.Close(); err != nil {
					t.Error(err)
				}
				return resp.StatusCode, resp.Header
			}
			status, header := get("")
			etag := header.Get("ETag")
			if contentType := header.Get("Content-Type"); status != http.StatusOK || etag == "" ||
				contentType != discovery.AcceptV2 {
				t.Fatalf("GET /apis: %d, ETag %q, Content-Type %q; want 200, some, %q", status, etag, contentType,
					discovery.AcceptV2)
			}
			if status, header := get(etag); status != http.StatusNotModified || header.Get("ETag") != etag {
				t.Errorf("GET /apis with its ETag: %d, ETag %q; want 304 and %q", status, header.Get("ETag"), etag)
			}
			if status, _ := get(`"other"`); status != http.StatusOK {
				t.Errorf("GET /apis with another ETag: %d, want 200", status)
			}
		})
	}
}
