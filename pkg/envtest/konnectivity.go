// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"example.com/extension-apiserver/konnectivity"
)

// Mode is how kube-apiserver speaks with its konnectivity server: the name of a file in konnectivity/egress.
type Mode string

// The modes that kube-apiserver can use.
const (
	GRPCOverUDS        Mode = "grpc-uds"
	HTTPConnectOverUDS Mode = "http-connect-uds"
	HTTPConnectOverTCP Mode = "http-connect-tcp"
)

// Modes are all modes.
func Modes() []Mode { return []Mode{GRPCOverUDS, HTTPConnectOverUDS, HTTPConnectOverTCP} }

// Tunnel is how one kube-apiserver reaches our servers.
type Tunnel struct {
	// Mode is empty for no egress selector and no konnectivity server: kube-apiserver connects by itself.
	Mode Mode
	// Routed gives its host a route to our servers, which is what a tunnel must not need.
	Routed bool
	// Network is EndpointRouting or ClusterIPRouting: who picks the endpoint, kube-apiserver or kube-proxy on the node. Default
	// that of the environment.
	Network Network
	// MutualTLS lets agents prove themselves by certificates instead of tokens, Leases lets them count servers by Leases.
	MutualTLS, Leases bool
	// Agents is how many are started.
	Agents int
	// ServerArgs are added to the konnectivity server's arguments, and replace those of the same flag.
	ServerArgs []string
}

const (
	nodeNumber = 100
	// Ports of konnectivity, as its manifests have them.
	agentPort, adminPort, healthPort = 8132, 8133, 8134

	konnectivityUser     = "system:konnectivity-server"
	konnectivityAudience = "system:konnectivity-server"
	agentNamespace       = "kube-system"
	agentAccount         = "konnectivity-agent"
	// LeaseNamespace is where the manifests put the servers' Leases.
	LeaseNamespace = "konnectivity-leases"
)

// NodeAddress is the address of the host of agents and our servers, seen from all hosts.
var NodeAddress = fmt.Sprintf("%s%d", hostNetwork, nodeNumber)

// agentServerNames are the addresses at which agents reach konnectivity's servers: that of each kube-apiserver, and the node's
// for what a test puts in between.
func (o *Options) agentServerNames() []string {
	if len(o.Tunnels) == 0 {
		return nil
	}
	names := []string{NodeAddress}
	for i := range o.KubeAPIServers {
		names = append(names, fmt.Sprintf("%s%d", hostNetwork, i+1))
	}
	return names
}

// startKonnectivity starts, for each kube-apiserver that runs already, its konnectivity server and agents.
func (e *Environment) startKonnectivity(ctx context.Context) error {
	if err := e.grantKonnectivity(ctx); err != nil {
		return err
	}
	for i, k := range e.KubeAPIServers {
		if err := errors.Join(e.setRoute(k, e.options.Tunnels[i].Routed), e.startProxyServer(ctx, k), e.startAgents(ctx, k)); err != nil {
			return err
		}
	}
	return nil
}

// SetTunnel gives a kube-apiserver another tunnel: its agents and its konnectivity server are started anew, and itself too. It
// returns when each is ready.
func (e *Environment) SetTunnel(ctx context.Context, k *KubeAPIServer, t Tunnel) error {
	for _, a := range k.Agents {
		a.Kill()
	}
	k.Agents = nil
	if k.ProxyServer != nil {
		if err := k.ProxyServer.Stop(); err != nil {
			return err
		}
		k.ProxyServer = nil
	}
	if err := e.setTunnel(k, t); err != nil {
		return err
	}
	// The server first: a dial to a socket that is not there holds kube-apiserver up for 30 s.
	return errors.Join(e.setRoute(k, t.Routed), e.startProxyServer(ctx, k), e.RestartKubeAPIServer(ctx, k), e.startAgents(ctx, k))
}

// setTunnel sets the flags of kube-apiserver.
func (e *Environment) setTunnel(k *KubeAPIServer, t Tunnel) error {
	if t.Network == "" {
		t.Network = e.options.Network
	}
	k.tunnel = t
	file := ""
	if t.Mode != "" {
		var err error
		if file, err = e.egressFile(k); err != nil {
			return err
		}
	}
	k.command = override(k.command, []string{
		"--egress-selector-config-file=" + file,
		fmt.Sprintf("--enable-aggregator-routing=%t", t.Network == EndpointRouting),
	})
	return nil
}

// egressFile writes the shipped configuration with the paths of this machine.
func (e *Environment) egressFile(k *KubeAPIServer) (string, error) {
	data, err := konnectivity.FS.ReadFile("egress/" + string(k.tunnel.Mode) + ".yaml")
	if err != nil {
		return "", fmt.Errorf("read the egress selector configuration: %w", err)
	}
	if err := os.MkdirAll(e.socketDir(k), 0o700); err != nil {
		return "", fmt.Errorf("make the directory of the socket: %w", err)
	}
	here := strings.NewReplacer("/etc/kubernetes/konnectivity-server/", e.socketDir(k)+"/", "/etc/kubernetes/konnectivity/", e.pki.dir+"/")
	path := filepath.Join(e.Dir, k.host.name+"-egress.yaml")
	if err := os.WriteFile(path, []byte(here.Replace(string(data))), 0o600); err != nil {
		return "", fmt.Errorf("write the egress selector configuration: %w", err)
	}
	return path, nil
}

func (e *Environment) socketDir(k *KubeAPIServer) string { return filepath.Join(e.Dir, k.host.name) }

// frontend are the flags of the konnectivity server's side towards kube-apiserver.
func (e *Environment) frontend(k *KubeAPIServer) []string {
	socket := []string{"--uds-name=" + filepath.Join(e.socketDir(k), "konnectivity-server.socket"), "--server-port=0"}
	switch k.tunnel.Mode {
	case GRPCOverUDS:
		return append(socket, "--mode=grpc")
	case HTTPConnectOverUDS:
		return append(socket, "--mode=http-connect")
	default:
		pair := filepath.Join(e.pki.dir, "konnectivity-server")
		return []string{"--mode=http-connect", "--server-bind-address=127.0.0.1", "--server-port=8131", "--server-cert=" + pair + "/tls.crt",
			"--server-key=" + pair + "/tls.key", "--server-ca-cert=" + pair + "/ca.crt"}
	}
}

// backend are the flags of its side towards agents.
func (e *Environment) backend(k *KubeAPIServer) ([]string, error) {
	pair := filepath.Join(e.pki.dir, "konnectivity-agent-server")
	args := []string{fmt.Sprintf("--agent-port=%d", agentPort), "--cluster-cert=" + pair + "/tls.crt", "--cluster-key=" + pair + "/tls.key"}
	if k.tunnel.MutualTLS {
		args = append(args, "--cluster-ca-cert="+pair+"/ca.crt")
	} else {
		args = append(args, "--agent-namespace="+agentNamespace, "--agent-service-account="+agentAccount,
			"--authentication-audience="+konnectivityAudience)
	}
	if k.tunnel.Leases {
		args = append(args, "--enable-lease-controller", "--lease-namespace="+LeaseNamespace)
	}
	if !k.tunnel.MutualTLS || k.tunnel.Leases {
		kubeconfig, err := e.kubeconfig(k, konnectivityUser, nil)
		if err != nil {
			return nil, err
		}
		args = append(args, "--kubeconfig="+kubeconfig, "--kubeconfig-qps=75", "--kubeconfig-burst=150")
	}
	return args, nil
}

func (e *Environment) startProxyServer(ctx context.Context, k *KubeAPIServer) error {
	if k.tunnel.Mode == "" {
		return nil
	}
	backend, err := e.backend(k)
	if err != nil {
		return err
	}
	command := append([]string{
		e.Binary("proxy-server"),
		fmt.Sprintf("--admin-port=%d", adminPort), "--admin-bind-address=127.0.0.1",
		fmt.Sprintf("--health-port=%d", healthPort), "--health-bind-address=127.0.0.1",
		"--keepalive-time=30s", "--frontend-keepalive-time=60s", "--xfr-channel-size=150", "--backend-dial-timeout=10s",
		// Not the manifests' 15 s: a test need not wait for tunnels that are held open. Zero would wait without end.
		"--graceful-shutdown-timeout=1s",
		"--v=3", // names each connection
	}, e.frontend(k)...)
	command = override(append(command, backend...), k.tunnel.ServerArgs)
	k.ProxyServer = &KonnectivityProcess{
		env: e, Name: "konnectivity-server-" + k.host.name, host: k.host, command: command, health: fmt.Sprintf("http://127.0.0.1:%d", healthPort),
	}
	return k.ProxyServer.Start(ctx)
}
