// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"os"
	"testing"

	"example.com/extension-apiserver/pkg/envtest"
)

// networkFaults are faults of the network between kube-apiserver and servers, in this order.
// Konnectivity connects them, unless the tunnel is cut.
var networkFaults = []struct {
	name, id string
	inject   func(*testing.T, *envtest.Environment)
}{
	{"no route", "S10", func(t *testing.T, e *envtest.Environment) {
		f := newFixture(t, e, "network")
		f.service(clusterIP(443, nil))
		f.slice("https", ready) // an address that no host has
		f.registerAt(443, nil)
	}},
	{"no konnectivity agent", "S16", func(t *testing.T, e *envtest.Environment) {
		tunnel := envtest.Tunnel{Mode: envtest.GRPCOverUDS, ServerCount: 1, Agents: 1}
		if err := e.SetTunnel(t.Context(), e.KubeAPIServers[0], tunnel); err != nil {
			t.Fatal(err)
		}
		wantNone(t, e)
		e.KubeAPIServers[0].Agents[0].Kill()
	}},
	{"no konnectivity server", "S17", func(_ *testing.T, e *envtest.Environment) {
		e.KubeAPIServers[0].ProxyServer.Kill()
	}},
}

func TestNetwork(t *testing.T) {
	if os.Geteuid() != 0 || testing.Short() {
		t.Skip("skipped in short mode and without root, which network namespaces need")
	}
	e := envtest.New(t, envtest.Options{Network: envtest.EndpointRouting, Tunnels: []envtest.Tunnel{{Routed: true}}})
	wantNone(t, e)
	for _, tc := range networkFaults {
		t.Run(tc.name, func(t *testing.T) {
			tc.inject(t, e)
			wantCause(t, e, tc.id, "A01")
		})
	}
}

// wantNone waits until there is no finding.
func wantNone(t *testing.T, e *envtest.Environment) {
	t.Helper()
	e.Eventually(t, "a healthy cluster", 2*envtest.WaitTimeout, func(context.Context) error {
		report, err := diagnose(t.Context(), e.Admin(t), 0)
		if err == nil && len(report.RootCauses) > 0 {
			err = errors.New(text(report))
		}
		return err
	})
}
