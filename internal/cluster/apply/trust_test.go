// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"crypto/x509"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/cluster"
	"example.com/extension-apiserver/internal/frontproxy"
)

// TestChangeFrontProxyCAs takes one CA out of the ConfigMap, or puts it back, by one patch that a change in between makes fail.
func TestChangeFrontProxyCAs(t *testing.T) {
	var cas certs.Bundle
	for range 3 {
		ca, err := certs.NewCA(certs.CAOptions{Name: "front-proxy-ca", Usage: x509.ExtKeyUsageClientAuth})
		if err != nil {
			t.Fatal(err)
		}
		cas = append(cas, ca.Certificate)
	}
	for _, tc := range []struct {
		name    string
		before  certs.Bundle
		add     certs.Bundle
		remove  certs.Bundle
		after   certs.Bundle
		patches int
		err     string
	}{
		{"the old CA goes, others stay", cas, nil, cas[:1], cas[1:], 1, ""},
		{"it is gone already", cas[1:], nil, cas[:1], cas[1:], 0, ""},
		{"it is the only one", cas[:1], nil, cas[:1], cas[:1], 0, "expected another CA"},
		{"it comes back", cas[:2], cas[2:], nil, cas, 1, ""},
		{"it is there already", cas, cas[:1], nil, cas, 0, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			core := fake.NewClientset(&corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: frontproxy.Namespace, Name: frontproxy.ConfigMapName, ResourceVersion: "7"},
				Data:       map[string]string{frontproxy.CAKey: string(tc.before.PEM()), "other": "stays"},
			})
			c := Client{&cluster.Cluster{Core: core}}
			if err := c.ChangeFrontProxyCAs(t.Context(), tc.add, tc.remove); (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Fatalf("got %v, want %q", err, tc.err)
			}
			cm, err := c.TrustConfigMap(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(map[string]string{frontproxy.CAKey: string(tc.after.PEM()), "other": "stays"}, cm.Data); diff != "" {
				t.Errorf("ConfigMap (-want +got):\n%s", diff)
			}
			patches := 0
			for _, action := range core.Actions() {
				if patch, ok := action.(clienttesting.PatchAction); ok {
					patches++
					if !strings.Contains(string(patch.GetPatch()), `{"op":"test","path":"/metadata/resourceVersion","value":"7"}`) {
						t.Errorf("the patch does not test the resourceVersion: %s", patch.GetPatch())
					}
				} else if action.GetVerb() != "get" {
					t.Errorf("got %s, want the ConfigMap to be patched in place", action.GetVerb())
				}
			}
			if patches != tc.patches {
				t.Errorf("%d patches, want %d", patches, tc.patches)
			}
		})
	}
}
