// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"os"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/extension-apiserver/pkg/envtest"
)

// TestNetworks runs two extension API servers behind one Service, on hosts with their own
// addresses. It reads through each of two kube-apiservers the objects that were written through
// the other.
func TestNetworks(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("network namespaces need root: run the tests as root")
	}
	// Simulate a machine that reaches the internet through a proxy. Connections in the network of
	// an environment must not use it.
	t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1")
	for _, network := range []envtest.Network{envtest.EndpointRouting, envtest.ClusterIPRouting} {
		t.Run(string(network), func(t *testing.T) {
			e := envtest.New(t, envtest.Options{Network: network, KubeAPIServers: 2, Servers: 2})
			for i, k := range e.KubeAPIServers {
				config, err := e.ConfigAt(k, envtest.Admin, "system:masters")
				if err != nil {
					t.Fatal(err)
				}
				name := fmt.Sprintf("through-%d", i)
				if _, err := gadgetCase.client(t, config, "").Create(t.Context(), gadgetCase.object(t, name),
					metav1.CreateOptions{}); err != nil {
					t.Fatalf("create through kube-apiserver %d: %v", i+1, err)
				}
				other, err := e.ConfigAt(e.KubeAPIServers[1-i], envtest.Admin, "system:masters")
				if err != nil {
					t.Fatal(err)
				}
				if _, err := gadgetCase.client(t, other, "").Get(t.Context(), name, metav1.GetOptions{}); err != nil {
					t.Errorf("get through the other kube-apiserver: %v", err)
				}
			}
			// Each server must be able to serve requests alone.
			for i, s := range e.Servers {
				if err := e.SetEndpoints(t.Context(), s); err != nil {
					t.Fatal(err)
				}
				stopOthers(t, e, s)
				client := gadgetCase.client(t, e.Admin(t), "")
				e.Eventually(t, fmt.Sprintf("server %d to respond alone", i+1), envtest.WaitTimeout,
					func(ctx context.Context) error {
						_, err := client.Get(ctx, "through-0", metav1.GetOptions{})
						return err
					})
				startOthers(t, e, s)
			}
		})
	}
}

func stopOthers(t *testing.T, e *envtest.Environment, keep *envtest.Server) {
	t.Helper()
	for _, s := range e.Servers {
		if s != keep {
			if err := e.StopServer(s); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func startOthers(t *testing.T, e *envtest.Environment, keep *envtest.Server) {
	t.Helper()
	for _, s := range e.Servers {
		if s != keep {
			if err := e.StartServer(t.Context(), s); err != nil {
				t.Fatal(err)
			}
		}
	}
}
