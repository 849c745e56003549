// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"syscall"
)

// KonnectivityProcess is a konnectivity server or agent.
type KonnectivityProcess struct {
	*process
	Name    string
	env     *Environment
	host    *host
	command []string
	health  string // URL of health checks and metrics, on its host's loopback
	agent   bool
}

// Start starts the process, also again after Stop or Kill. It returns when the process is alive.
// An agent can be alive without a server.
func (p *KonnectivityProcess) Start(ctx context.Context) (err error) {
	if p.process, err = p.env.processes.start(p.host, p.Name, p.command); err != nil {
		return err
	}
	// An agent only drains after SIGTERM. The kubelet kills it at the end of the grace period.
	p.killed, p.tunnel = p.agent, true
	return p.ready(ctx, startTimeout, func(ctx context.Context) error { _, err := p.get(ctx, "/healthz"); return err })
}

// Stop stops a server as the kubelet does, and kills an agent.
func (p *KonnectivityProcess) Stop() error { return p.stop() }

// Kill kills the process at once.
func (p *KonnectivityProcess) Kill() { p.kill() }

// Freeze suspends the process with its connections open, until Thaw.
func (p *KonnectivityProcess) Freeze() error { return p.signal(syscall.SIGSTOP) }

// Thaw resumes the process.
func (p *KonnectivityProcess) Thaw() error { return p.signal(syscall.SIGCONT) }

// Ready returns nil if the process is ready: a server that has an agent, or an agent that has a
// server.
func (p *KonnectivityProcess) Ready(ctx context.Context) error {
	_, err := p.get(ctx, "/readyz")
	return err
}

// Metrics returns the metrics of the process.
func (p *KonnectivityProcess) Metrics(ctx context.Context) ([]byte, error) {
	return p.get(ctx, "/metrics")
}

func (p *KonnectivityProcess) get(ctx context.Context, path string) ([]byte, error) {
	transport := &http.Transport{DialContext: p.host.dial}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.health+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s of %s: %s: %s", path, p.Name, resp.Status, data)
	}
	return data, err
}

// NewAgent returns an agent on the node, which is not started. It connects to the server of the
// kube-apiserver unless args, which replace its arguments, name another.
func (e *Environment) NewAgent(ctx context.Context, k *KubeAPIServer, args ...string) (*KonnectivityProcess, error) {
	number := int(e.agents.Add(1))
	name := fmt.Sprintf("konnectivity-agent-%d", number)
	// All agents share the addresses of the node.
	port := 18000 + 2*number
	var components []string
	if k.tunnel.MutualTLS {
		components = []string{"agents/components/mtls"}
	}
	token, err := e.AgentToken(ctx, konnectivityAudience) // unused with mutual TLS
	if err != nil {
		return nil, err
	}
	kubeconfig, err := e.AccountKubeconfig(ctx, agentNamespace, agentAccount)
	if err != nil {
		return nil, err
	}
	here := e.localPaths(k, "/var/run/secrets/konnectivity/token", token, "$(PROXY_SERVER_HOST)", k.host.address,
		"$(HOST_IP)", NodeAddress)
	command, err := e.shippedCommand(ctx, here, "proxy-agent", "konnectivity-agent", "agents/base", components...)
	if err != nil {
		return nil, err
	}
	command = override(command, []string{
		"--health-server-host=127.0.0.1", fmt.Sprintf("--health-server-port=%d", port),
		"--admin-bind-address=127.0.0.1", fmt.Sprintf("--admin-server-port=%d", port+1),
		fmt.Sprintf("--count-server-leases=%t", k.tunnel.ServerCount == 0), "--kubeconfig=" + kubeconfig,
		"--v=3", // logs each connection
	})
	return &KonnectivityProcess{
		env: e, Name: name, host: e.node, command: override(command, args),
		health: fmt.Sprintf("http://127.0.0.1:%d", port), agent: true,
	}, nil
}

// startAgents starts the agents of a kube-apiserver's tunnel. It returns when all are ready.
func (e *Environment) startAgents(ctx context.Context, k *KubeAPIServer) error {
	for range k.tunnel.Agents {
		a, err := e.NewAgent(ctx, k)
		if err != nil {
			return err
		}
		k.Agents = append(k.Agents, a)
		if err := a.Start(ctx); err != nil {
			return err
		}
		if err := a.ready(ctx, startTimeout, a.Ready); err != nil {
			return err
		}
	}
	return nil
}
