// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"crypto/x509"
	"slices"
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

// TestChangeFrontProxyCAs: a CA is removed from the ConfigMap, or restored, with one update that
// fails after a concurrent change.
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
		dryRun  []string
		updates int
		err     string
	}{
		{"the old CA goes, others stay", cas, nil, cas[:1], cas[1:], nil, 1, ""},
		{"it is gone already", cas[1:], nil, cas[:1], cas[1:], nil, 0, ""},
		{"it is the only one", cas[:1], nil, cas[:1], cas[:1], nil, 0, "expected another CA"},
		{"it comes back", cas[:2], cas[2:], nil, cas, nil, 1, ""},
		{"it exists already", cas, cas[:1], nil, cas, nil, 0, ""},
		{"it is only tried", cas, nil, nil, cas, []string{metav1.DryRunAll}, 1, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			core := fake.NewClientset(&corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: frontproxy.Namespace, Name: frontproxy.ConfigMapName,
					ResourceVersion: "7"},
				Data: map[string]string{frontproxy.CAKey: string(tc.before.PEM()), "other": "stays"},
			})
			c := Client{&cluster.Cluster{Core: core}}
			if err := c.ChangeFrontProxyCAs(t.Context(), tc.add, tc.remove,
				tc.dryRun...); (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Fatalf("got %v, want %q", err, tc.err)
			}
			cm, err := c.TrustConfigMap(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(map[string]string{frontproxy.CAKey: string(tc.after.PEM()), "other": "stays"},
				cm.Data); diff != "" {
				t.Errorf("ConfigMap (-want +got):\n%s", diff)
			}
			updates := 0
			for _, action := range core.Actions() {
				if update, ok := action.(clienttesting.UpdateActionImpl); ok {
					updates++
					if !slices.Equal(update.UpdateOptions.DryRun, tc.dryRun) {
						t.Errorf("the update has the dry run %q, want %q", update.UpdateOptions.DryRun, tc.dryRun)
					}
					if version := update.GetObject().(*corev1.ConfigMap).ResourceVersion; version != "7" {
						t.Errorf("the update has the resourceVersion %q, want the one that was read", version)
					}
				} else if action.GetVerb() != "get" {
					t.Errorf("got %s, want the ConfigMap to be changed in place", action.GetVerb())
				}
			}
			if updates != tc.updates {
				t.Errorf("%d updates, want %d", updates, tc.updates)
			}
		})
	}
}
