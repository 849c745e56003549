// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestEngineGarbage: a resourceVersion that nobody gave out and a negative limit are the client's fault, and nothing is stored.
// Here we are ahead of the built-in kinds, which answer the first with 500 and take the second for no limit.
func TestEngineGarbage(t *testing.T) {
	namespace := newNamespace(t, shared)
	newEngine(t, namespace, "w")
	client := engineCase.client(t, adminConfig(t, shared), namespace)
	before, err := client.Get(t.Context(), "w", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	garbage := before.DeepCopy()
	garbage.SetResourceVersion("abc")
	created := engineCase.object(t, "other")
	created.SetResourceVersion("7")
	for _, tc := range []struct {
		name, field string
		do          func() error
	}{
		{"get", "resourceVersion", func() error {
			_, err := client.Get(t.Context(), "w", metav1.GetOptions{ResourceVersion: "abc"})
			return err
		}},
		{"watch", "resourceVersion", func() error {
			_, err := client.Watch(t.Context(), metav1.ListOptions{ResourceVersion: "abc"})
			return err
		}},
		{"list", "limit", func() error {
			_, err := client.List(t.Context(), metav1.ListOptions{Limit: -1})
			return err
		}},
		{"update", "metadata.resourceVersion", func() error {
			_, err := client.Update(t.Context(), garbage, metav1.UpdateOptions{})
			return err
		}},
		{"update of the status", "metadata.resourceVersion", func() error {
			_, err := client.UpdateStatus(t.Context(), garbage, metav1.UpdateOptions{})
			return err
		}},
		{"create", "metadata.resourceVersion", func() error {
			_, err := client.Create(t.Context(), created, metav1.CreateOptions{})
			return err
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := tc.do()
			if diff := cmp.Diff([]string{tc.field}, invalidFields(t, err)); diff != "" {
				t.Errorf("fields with errors (-want +got):\n%s\n%v", diff, err)
			}
		})
	}
	list, err := client.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 || list.Items[0].GetResourceVersion() != before.GetResourceVersion() {
		t.Errorf("after what was refused: %v (%v), want the one engine at %s", list, err, before.GetResourceVersion())
	}
}
