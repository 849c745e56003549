// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"example.com/extension-apiserver/konnectivity"
)

// Mode is the protocol between kube-apiserver and its konnectivity server: the name of a file in
// konnectivity/egress.
type Mode string

// The modes that kube-apiserver supports.
const (
	GRPCOverUDS        Mode = "grpc-uds"
	HTTPConnectOverUDS Mode = "http-connect-uds"
	HTTPConnectOverTCP Mode = "http-connect-tcp"
)

// Modes returns all modes.
func Modes() []Mode { return []Mode{GRPCOverUDS, HTTPConnectOverUDS, HTTPConnectOverTCP} }

// Tunnel defines how one kube-apiserver reaches the extension API servers.
type Tunnel struct {
	// Mode is empty for no egress selector and no konnectivity server: kube-apiserver connects
	// directly.
	Mode Mode
	// Routed gives its host a route to the extension API servers, which a tunnel must not need.
	Routed bool
	// Network is EndpointRouting or ClusterIPRouting: kube-apiserver or kube-proxy on the node
	// selects the endpoint. Default: the network of the environment.
	Network Network
	// MutualTLS authenticates agents by certificates instead of tokens.
	MutualTLS bool
	// ServerCount is the number of servers that agents expect. With 0 they count Leases, as in
	// the manifests, and connect to that many servers. Several tunnels with their own agents and
	// no load balancer each need 1.
	ServerCount int
	// Agents is the number of agents to start.
	Agents int
	// ServerArgs are added to the arguments of the konnectivity server and replace those of the
	// same flag.
	ServerArgs []string
}

const (
	nodeNumber = 100
	// Ports of the konnectivity servers, as in the manifests.
	agentPort, healthPort = 8132, 8134

	konnectivityUser     = "system:konnectivity-server"
	konnectivityAudience = "system:konnectivity-server"
	agentNamespace       = "kube-system"
	agentAccount         = "konnectivity-agent"
	// LeaseNamespace is the namespace of the servers' Leases in the manifests.
	LeaseNamespace = "konnectivity-leases"
)

// NodeAddress is the address of the host of agents and extension API servers, as seen from all
// hosts.
var NodeAddress = fmt.Sprintf("%s%d", hostNetwork, nodeNumber)

// agentServerNames returns the addresses at which agents reach the konnectivity servers: that of
// each kube-apiserver, and the node's address for a load balancer of a test.
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

// controlPlaneEndpoint returns the address of the load balancer that a test runs for several
// kube-apiservers. kubeadm requires such an endpoint for a second kube-apiserver, and adds it to
// each certificate.
func (o *Options) controlPlaneEndpoint() []string {
	if len(o.Tunnels) > 1 {
		return []string{NodeAddress}
	}
	return nil
}

// startKonnectivity starts the konnectivity server and agents of each running kube-apiserver.
func (e *Environment) startKonnectivity(ctx context.Context) error {
	if err := e.grantKonnectivity(ctx); err != nil {
		return err
	}
	for i, k := range e.KubeAPIServers {
		if err := errors.Join(e.setRoute(k, e.options.Tunnels[i].Routed), e.startProxyServer(ctx, k),
			e.startAgents(ctx, k)); err != nil {
			return err
		}
	}
	return nil
}

// SetTunnel changes the tunnel of a kube-apiserver. It restarts the agents, the konnectivity
// server and the kube-apiserver, and returns when all are ready.
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
	// Start the konnectivity server first: dialing a missing socket blocks kube-apiserver for 30
	// s.
	return errors.Join(e.setRoute(k, t.Routed), e.startProxyServer(ctx, k), e.RestartKubeAPIServer(ctx, k),
		e.startAgents(ctx, k))
}

// setTunnel sets the flags of kube-apiserver.
func (e *Environment) setTunnel(k *KubeAPIServer, t Tunnel) error {
	if t.Network == "" {
		t.Network = e.options.Network
	}
	k.tunnel = t
	file, err := e.egressFile(k)
	if err != nil {
		return err
	}
	k.command = override(k.command, []string{
		"--egress-selector-config-file=" + file,
		fmt.Sprintf("--enable-aggregator-routing=%t", t.Network == EndpointRouting),
	})
	return nil
}

// egressFile writes the shipped configuration with local paths, if the kube-apiserver has a
// tunnel.
func (e *Environment) egressFile(k *KubeAPIServer) (string, error) {
	if k.tunnel.Mode == "" {
		return "", nil
	}
	data, err := konnectivity.FS.ReadFile("egress/" + string(k.tunnel.Mode) + ".yaml")
	if err != nil {
		return "", fmt.Errorf("read the egress selector configuration: %w", err)
	}
	if err := os.MkdirAll(e.socketDir(k), 0o700); err != nil {
		return "", fmt.Errorf("create socket directory: %w", err)
	}
	path := filepath.Join(e.Dir, k.host.name+"-egress.yaml")
	if err := os.WriteFile(path, []byte(e.localPaths(k).Replace(string(data))), 0o600); err != nil {
		return "", fmt.Errorf("write the egress selector configuration: %w", err)
	}
	return path, nil
}

// localPaths returns a Replacer from paths of the manifests to local paths. The replacements in
// first take precedence.
func (e *Environment) localPaths(k *KubeAPIServer, first ...string) *strings.Replacer {
	return strings.NewReplacer(append(first, "/etc/kubernetes/konnectivity-server/", e.socketDir(k)+"/",
		"/etc/kubernetes/konnectivity/", e.pki.dir+"/")...)
}

func (e *Environment) socketDir(k *KubeAPIServer) string { return filepath.Join(e.Dir, k.host.name) }

// serverComponents returns the components of konnectivity/server/static-pod for a tunnel.
func (t *Tunnel) serverComponents() []string {
	var out []string
	if t.MutualTLS {
		out = append(out, "server/static-pod/components/mtls")
	}
	if t.Mode != GRPCOverUDS {
		out = append(out, "server/static-pod/components/"+string(t.Mode))
	}
	return out
}

// startProxyServer starts the konnectivity server with the arguments of its manifest and local
// paths.
func (e *Environment) startProxyServer(ctx context.Context, k *KubeAPIServer) error {
	if k.tunnel.Mode == "" {
		return nil
	}
	kubeconfig, err := e.kubeconfig(k, konnectivityUser, nil)
	if err != nil {
		return err
	}
	here := e.localPaths(k, "/etc/kubernetes/konnectivity/kubeconfig/konnectivity-server.kubeconfig", kubeconfig)
	command, err := e.shippedCommand(ctx, here, "proxy-server", "konnectivity-server", "server/static-pod",
		k.tunnel.serverComponents()...)
	if err != nil {
		return err
	}
	args := []string{
		// A test need not wait for tunnels that are held open. Zero would wait forever.
		"--graceful-shutdown-timeout=1s",
		"--v=3", // logs each connection
	}
	if n := k.tunnel.ServerCount; n > 0 {
		args = append(args, "--enable-lease-controller=false", fmt.Sprintf("--server-count=%d", n))
	}
	k.ProxyServer = &KonnectivityProcess{
		env: e, Name: "konnectivity-server-" + k.host.name, host: k.host,
		command: override(override(command, args), k.tunnel.ServerArgs),
		health:  fmt.Sprintf("http://127.0.0.1:%d", healthPort),
	}
	return k.ProxyServer.Start(ctx)
}

// shippedCommand renders a folder of konnectivity/ with components. It returns the program with
// the arguments of a container and local paths.
func (e *Environment) shippedCommand(ctx context.Context, here *strings.Replacer, program, container, folder string,
	components ...string) ([]string, error) {
	dir, err := os.MkdirTemp(filepath.Join(e.Dir, "konnectivity"), "env-")
	if err != nil {
		return nil, fmt.Errorf("render %s: %w", folder, err)
	}
	text := fmt.Sprintf("resources: [../%s]\n", folder)
	if len(components) > 0 {
		text += "components: [../" + strings.Join(components, ", ../") + "]\n"
	}
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		return nil, fmt.Errorf("render %s: %w", folder, err)
	}
	rendered, stderr, err := Kubectl{}.Run(ctx, e, "kustomize", dir)
	if err != nil {
		return nil, fmt.Errorf("render %s: %w: %s", folder, err, stderr)
	}
	for object := range strings.SplitSeq(rendered, "\n---\n") {
		var workload struct {
			Spec struct { // of a Pod, or of a controller that creates Pods
				Containers []corev1.Container
				Template   corev1.PodTemplateSpec
			}
		}
		if err := yaml.Unmarshal([]byte(object), &workload); err != nil {
			return nil, fmt.Errorf("read the rendered %s: %w", folder, err)
		}
		for _, c := range slices.Concat(workload.Spec.Containers, workload.Spec.Template.Spec.Containers) {
			if c.Name == container {
				return append([]string{e.Binary(program)}, strings.Split(here.Replace(strings.Join(c.Args, "\n")),
					"\n")...), nil
			}
		}
	}
	return nil, fmt.Errorf("render %s: it has no container %s", folder, container)
}
