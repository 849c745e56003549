// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"example.com/extension-apiserver/internal/konnectivity/live"
	"example.com/extension-apiserver/pkg/envtest"
)

// balancerPort is the port of the load balancer in front of the konnectivity servers.
const balancerPort = 8232

// TestTwoServers puts a load balancer in front of two konnectivity servers. An agent learns the
// server count from the first. With a count of two, it connects until it has both. With a count of
// one, the other kube-apiserver has no agent, and the live check reports why.
func TestTwoServers(t *testing.T) {
	t.Parallel()
	tunnel := func(count int) envtest.Tunnel {
		return envtest.Tunnel{Mode: envtest.GRPCOverUDS, ServerCount: count}
	}
	e := start(t, envtest.Options{Network: envtest.EndpointRouting, Unregistered: true,
		Tunnels: []envtest.Tunnel{tunnel(2), tunnel(2)}})
	listener, err := e.ListenOnNode(balancerPort)
	if err != nil {
		t.Fatal(err)
	}
	var targets []func(context.Context) (net.Conn, error)
	for _, k := range e.KubeAPIServers {
		targets = append(targets, func(ctx context.Context) (net.Conn,
			error) {
			return e.DialFromNode(ctx, k.Address())
		})
	}
	envtest.Forward(t, listener, targets...)

	agent := balanced(t, e, 2)
	if err := e.Register(t.Context()); err != nil { // this sends a request through each kube-apiserver
		t.Fatal(err)
	}
	agent.Kill()
	for _, k := range e.KubeAPIServers {
		if err := e.SetTunnel(t.Context(), k, tunnel(1)); err != nil {
			t.Fatal(err)
		}
	}
	agent = balanced(t, e, 1)
	configs, err := e.AdminConfigs()
	if err != nil {
		t.Fatal(err)
	}
	// The agent has as many servers as it expects, and looks for no more.
	e.Eventually(t, "one kube-apiserver to have the agent and the other to have none", envtest.WaitTimeout,
		func(ctx context.Context) error {
			var with, without int
			for _, config := range configs {
				err := get(ctx, config, gadgets+"?limit=1")
				switch {
				case err == nil:
					with++
				case strings.Contains(err.Error(), "No agent available"):
					without++
				}
			}
			if with != 1 || without != 1 {
				return fmt.Errorf("%d respond and %d report that they have no agent", with, without)
			}
			return nil
		})
	var found []string
	for _, f := range live.Check(t.Context(), liveState(e, 2, agent)) {
		found = append(found, f.ID)
	}
	// The agent has too few servers without knowing it, and one server has no agent.
	if want := []string{"T12", "T12", "T13"}; !slices.Equal(slices.Sorted(slices.Values(found)), want) {
		t.Errorf("the live check finds %v, want %v", found, want)
	}
}

// liveState returns the input of the live check, with the servers of the first kube-apiservers.
func liveState(e *envtest.Environment, kubeAPIServers int, agents ...*envtest.KonnectivityProcess) live.State {
	s := live.State{KubeAPIServers: kubeAPIServers}
	for _, a := range agents {
		s.Agents = append(s.Agents, live.Target{Name: a.Name, Metrics: a.Metrics})
	}
	for _, k := range e.KubeAPIServers[:kubeAPIServers] {
		s.Servers = append(s.Servers, live.Target{Name: k.ProxyServer.Name, Metrics: k.ProxyServer.Metrics})
	}
	return s
}

// balanced starts an agent that reaches the servers through the load balancer, and waits until it
// is connected to so many.
func balanced(t *testing.T, e *envtest.Environment, servers float64) *envtest.KonnectivityProcess {
	t.Helper()
	agent, err := e.NewAgent(t.Context(), only(e), "--proxy-server-host="+envtest.NodeAddress,
		fmt.Sprintf("--proxy-server-port=%d", balancerPort))
	if err != nil {
		t.Fatal(err)
	}
	if err := agent.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	e.Eventually(t, fmt.Sprintf("the agent to have %v servers", servers), envtest.WaitTimeout,
		func(ctx context.Context) error {
			metrics, err := metricsOf(ctx, agent)
			if err != nil {
				return err
			}
			open, known := sum(metrics, agentMetric+"open_server_connections", nil),
				sum(metrics, agentMetric+"known_server_count", nil)
			if open != servers || known != servers {
				return fmt.Errorf("it has %v of %v that it knows", open, known)
			}
			return nil
		})
	return agent
}
