// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"context"
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/extension-apiserver/pkg/envtest"
)

// leased waits for the Lease of the konnectivity server. Without it everything else works too:
// agents then count the one server to which they are connected.
func leased(t *testing.T, e *envtest.Environment) {
	t.Helper()
	client, err := e.AdminClient()
	if err != nil {
		t.Fatal(err)
	}
	e.Eventually(t, "the Lease of the konnectivity server", envtest.WaitTimeout, func(ctx context.Context) error {
		leases, err := client.CoordinationV1().Leases(envtest.LeaseNamespace).List(ctx,
			metav1.ListOptions{LabelSelector: "k8s-app=konnectivity-server"})
		if err == nil && len(leases.Items) == 0 {
			err = errors.New("there is none")
		}
		return err
	})
}
