// SPDX-License-Identifier: Apache-2.0

package scripts

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// TestPurgeKeepsNamespace checks that undeploy keeps the namespace if its deletion would leave a
// broken API behind, or would never complete because of one.
func TestPurgeKeepsNamespace(t *testing.T) {
	for what, test := range map[string]struct {
		backend string // namespace of the missing Service
		want    string
	}{
		"an APIService needs it": {namespace, "undeploy: cannot delete namespace " + namespace +
			": APIService v1.other.example.com needs a Service in it"},
		"an APIService elsewhere is broken": {"elsewhere", "undeploy: cannot delete namespace " + namespace +
			" while an APIService is not Available: v1.other.example.com"},
	} {
		t.Run(what, func(t *testing.T) {
			c := newCluster(t, shared)
			ours := name
			c.label(&ours)
			other := &apiregistrationv1.APIService{
				ObjectMeta: metav1.ObjectMeta{Name: "v1.other.example.com"},
				Spec: apiregistrationv1.APIServiceSpec{Group: "other.example.com", Version: "v1",
					GroupPriorityMinimum: 1000, VersionPriority: 10,
					Service: &apiregistrationv1.ServiceReference{Namespace: test.backend, Name: "other"}},
			}
			if _, err := c.services.Create(t.Context(), other, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := c.services.Delete(context.WithoutCancel(t.Context()), other.Name,
					metav1.DeleteOptions{}); err != nil {
					t.Error(err)
				}
			})
			shared.Eventually(t, "the APIService to be called unavailable", time.Minute,
				func(ctx context.Context) error {
					got, err := c.services.Get(ctx, other.Name, metav1.GetOptions{})
					if err == nil && len(got.Status.Conditions) == 0 {
						err = errors.New("it has no condition yet")
					}
					return err
				})
			_, kubeconfig := newFront(t, c.config, nil)
			last, out, err := script(t, "undeploy.sh", "KUBECONFIG="+kubeconfig, "TIMEOUT=30", "PURGE=1")
			if err == nil || !strings.HasPrefix(last, test.want) {
				t.Errorf("got %v and:\n%s\nwant %q", err, out, test.want)
			}
			found, err := c.core.CoreV1().Namespaces().Get(t.Context(), namespace, metav1.GetOptions{})
			if err != nil || found.DeletionTimestamp != nil {
				t.Errorf("the namespace: deleted at %v (%v), want it kept", found.DeletionTimestamp, err)
			}
		})
	}
}
