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
	// Network is EndpointRouting or ClusterIPRouting: who picks the endpoint, kube-apiserver or kube-proxy on the node.
	// Default that of the environment.
	Network Network
	// MutualTLS lets agents prove themselves by certificates instead of tokens.
	MutualTLS bool
	// ServerCount tells agents how many servers there are. 0 means that they count Leases, as the manifests have it,
	// and then look for all: with agents of its own behind no load balancer, each of several tunnels needs 1.
	ServerCount int
	// Agents is how many are started.
	Agents int
	// ServerArgs are added to the konnectivity server's arguments, and replace those of the same flag.
	ServerArgs []string
}

const (
	nodeNumber = 100
	// Ports of konnectivity's servers, as the manifests have them.
	agentPort, healthPort = 8132, 8134

	konnectivityUser     = "system:konnectivity-server"
	konnectivityAudience = "system:konnectivity-server"
	agentNamespace       = "kube-system"
	agentAccount         = "konnectivity-agent"
	// LeaseNamespace is where the manifests put the servers' Leases.
	LeaseNamespace = "konnectivity-leases"
)

// NodeAddress is the address of the host of agents and our servers, seen from all hosts.
var NodeAddress = fmt.Sprintf("%s%d", hostNetwork, nodeNumber)

// agentServerNames are the addresses at which agents reach konnectivity's servers: that of each kube-apiserver, and the
// node's for what a test puts in between.
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

// controlPlaneEndpoint is the address of what a test puts in front of several kube-apiservers, without which kubeadm
// adds no second one. kubeadm has it in each one's certificate.
func (o *Options) controlPlaneEndpoint() []string {
	if len(o.Tunnels) > 1 {
		return []string{NodeAddress}
	}
	return nil
}

// startKonnectivity starts, for each kube-apiserver that runs already, its konnectivity server and agents.
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

// SetTunnel gives a kube-apiserver another tunnel: its agents and its konnectivity server are started anew, and itself
// too. It returns when each is ready.
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

// egressFile writes the shipped configuration with the paths of this machine, if kube-apiserver has a tunnel.
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

// localPaths replaces paths of the manifests by those of this machine, and before them what else is given.
func (e *Environment) localPaths(k *KubeAPIServer, first ...string) *strings.Replacer {
	return strings.NewReplacer(append(first, "/etc/kubernetes/konnectivity-server/", e.socketDir(k)+"/",
		"/etc/kubernetes/konnectivity/", e.pki.dir+"/")...)
}

func (e *Environment) socketDir(k *KubeAPIServer) string { return filepath.Join(e.Dir, k.host.name) }

// serverComponents are those of konnectivity/server/static-pod for a tunnel.
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

// startProxyServer starts the konnectivity server with the arguments of its manifest, and the paths of this machine.
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
		// A test need not wait for tunnels that are held open. Zero would wait without end.
		"--graceful-shutdown-timeout=1s",
		"--v=3", // names each connection
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

// shippedCommand renders a folder of konnectivity/ with components, and returns a program with the arguments of a
// container, as they are here.
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
			Spec struct { // of a Pod, or of what makes Pods
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
