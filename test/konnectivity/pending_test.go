// SPDX-License-Identifier: Apache-2.0

//go:build measure

package konnectivity

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"example.com/extension-apiserver/pkg/envtest"
)

// TestMeasurePending measures what is left of dials to which a frozen agent never responded, with
// and without --backend-dial-timeout, which is unset by default
// (https://github.com/kubernetes-sigs/apiserver-network-proxy/issues/855). The server gives up the
// agent after 50 s; the measurement is a minute later.
func TestMeasurePending(t *testing.T) {
	for _, mode := range envtest.Modes() {
		for _, timeout := range []string{"0s", "10s"} {
			t.Run(fmt.Sprintf("%s/%s", mode, timeout), func(t *testing.T) {
				e := start(t, envtest.Options{Network: envtest.EndpointRouting, Tunnels: []envtest.Tunnel{{
					Mode: mode, Agents: 1, ServerArgs: []string{"--backend-dial-timeout=" + timeout},
				}}})
				k := only(e)
				before := pending(t, k)
				if err := k.Agents[0].Freeze(); err != nil {
					t.Fatal(err)
				}
				e.Eventually(t, "the server to give its agent up", envtest.WaitTimeout, func(ctx context.Context) error {
					metrics, err := metricsOf(ctx, k.ProxyServer)
					if err == nil && sum(metrics, serverMetric+"ready_backends", nil) > 0 {
						err = errors.New("it has one")
					}
					return err
				})
				given := pending(t, k)
				later := time.Now().Add(time.Minute)
				if err := wait.PollUntilContextCancel(t.Context(), time.Second, true,
					func(context.Context) (bool, error) {
						return time.Now().After(later), nil
					}); err != nil {
					t.Fatal(err)
				}
				t.Logf("%s, --backend-dial-timeout=%s: before %s; agent given up %s; a minute later %s", mode, timeout,
					before, given, pending(t, k))
			})
		}
	}
}

// pending formats the number of pending dials and the resources that the server holds.
func pending(t *testing.T, k *envtest.KubeAPIServer) string {
	t.Helper()
	metrics, err := metricsOf(t.Context(), k.ProxyServer)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%v pending dials, %v HTTP connections, %+v",
		sum(metrics, serverMetric+"pending_backend_dials", nil), sum(metrics, serverMetric+"http_connections", nil),
		heldIn(metrics))
}
