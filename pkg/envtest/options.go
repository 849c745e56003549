// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	rbacv1 "k8s.io/api/rbac/v1"
)

// Network defines how the processes reach each other.
type Network string

const (
	// Loopback runs everything on 127.0.0.1, with the extension API server behind a Service of
	// type ExternalName. It needs no privileges.
	Loopback Network = "Loopback"
	// EndpointRouting gives every host a network namespace with its own address. kube-apiserver
	// selects an endpoint of the Service itself (--enable-aggregator-routing). It needs
	// permission to create network namespaces.
	EndpointRouting Network = "EndpointRouting"
	// ClusterIPRouting is like EndpointRouting, but kube-apiserver connects to the Service's
	// ClusterIP, and a real kube-proxy on its host selects the endpoint. It also needs nft.
	ClusterIPRouting Network = "ClusterIPRouting"
)

// Options define the processes of an environment. The zero value is a control plane on loopback
// with one extension API server and its embedded etcd.
type Options struct {
	// Dir contains state, logs and kubeconfigs. A second Start on it reuses the stored state.
	// Default: a temporary directory that Stop removes.
	Dir string
	// Network is the network of the processes. Default: Loopback.
	Network Network
	// KubeAPIServers is the number of kube-apiservers of the control plane, 1 to 4. Default: 1,
	// or one for each tunnel. More than one needs EndpointRouting or ClusterIPRouting.
	KubeAPIServers int
	// Tunnels define, for each kube-apiserver in order, how konnectivity connects it to the
	// extension API servers, which are then on a node to which no kube-apiserver has a route.
	// They need EndpointRouting or ClusterIPRouting. Empty means that all hosts reach each other.
	Tunnels []Tunnel
	// Servers is the number of extension API servers behind the Service. Default: 1. Several
	// servers need EndpointRouting or ClusterIPRouting, and share an external etcd if they have a
	// storage.
	Servers int
	// ExternalEtcd gives the extension API servers an etcd with TLS instead of the embedded one.
	ExternalEtcd bool
	// KubeAPIServerArgs and ServerArgs are added to the arguments of each kube-apiserver and each
	// extension API server, and replace those of the same flag. Each must have the form
	// --flag=value.
	KubeAPIServerArgs, ServerArgs []string
	// ServerEnv is added to the environment of each extension API server, as NAME=value.
	ServerEnv []string
	// FrontProxyPerHost gives each kube-apiserver its own directory with the front proxy's
	// certificate, key and CA, all of the same CA, as if each host had a PKI directory:
	// KubeAPIServer.FrontProxyClientDir. Otherwise all read the directory of certgen init.
	FrontProxyPerHost bool
	// Server is the program of the extension API servers: a main package as for Build, or the
	// absolute path of a file. Default: the server of the sample, which serves
	// workshop.example.com. A server without an embedded etcd needs ExternalEtcd.
	Server string
	// ServerPermissions are granted to the servers in addition to the permissions of the manifests and
	// of their API (apiserver.API's Permissions).
	ServerPermissions []rbacv1.PolicyRule
	// Unregistered makes Start return before the API is registered, for tests of the time before.
	Unregistered bool
	// Progress receives a line for each step. Default: none, except that builds, which can take
	// minutes, report their progress on os.Stderr.
	Progress io.Writer
}

// sampleServer is the package of the server of the sample API.
const sampleServer = kit + "/cmd/extension-apiserver"

// maxKubeAPIServers is one for each konnectivity mode and one without a tunnel.
const maxKubeAPIServers = 4

func (o *Options) complete() error {
	if o.Network == "" {
		o.Network = Loopback
	}
	if o.KubeAPIServers == 0 {
		o.KubeAPIServers = max(1, len(o.Tunnels))
	}
	if o.Servers == 0 {
		o.Servers = 1
	}
	if o.Servers > 1 {
		o.ExternalEtcd = true
	}
	if o.Server == "" {
		o.Server = sampleServer
	}
	if o.Progress != nil {
		o.Progress = &lineWriter{to: o.Progress}
	}
	if o.Network == Loopback && (o.Servers > 1 || o.KubeAPIServers > 1) {
		return errors.New("start environment: more than one server or kube-apiserver requires the Network EndpointRouting " +
			"or ClusterIPRouting, because a Service has only one address on loopback")
	}
	if o.KubeAPIServers > maxKubeAPIServers {
		return fmt.Errorf("start environment: KubeAPIServers must be at most %d", maxKubeAPIServers)
	}
	if len(o.Tunnels) > 0 && (o.Network == Loopback || len(o.Tunnels) != o.KubeAPIServers) {
		return errors.New("start environment: Tunnels requires a network of hosts, and one tunnel for each kube-apiserver")
	}
	return nil
}

// override adds arguments to a command and removes earlier ones of the same flags, because a list
// flag would get the values of both.
func override(command, args []string) []string {
	flag := func(arg string) string { name, _, _ := strings.Cut(arg, "="); return name }
	command = slices.DeleteFunc(command, func(have string) bool {
		return slices.ContainsFunc(args, func(arg string) bool { return flag(arg) == flag(have) })
	})
	return append(command, args...)
}

// stepProgress and buildProgress return the writers for lines about steps and about builds.
func (o *Options) stepProgress() io.Writer {
	if o.Progress == nil {
		return io.Discard
	}
	return o.Progress
}

func (o *Options) buildProgress() io.Writer {
	if o.Progress == nil {
		return os.Stderr
	}
	return o.Progress
}

// lineWriter serializes writes, because steps and builds report their progress concurrently.
type lineWriter struct {
	mu sync.Mutex
	to io.Writer
}

func (w *lineWriter) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to.Write(line)
}

// moduleRoot returns the root of the module of the working directory, which for a test is the
// directory of its package. Outside a module it returns the working directory.
func moduleRoot() (string, error) {
	working, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := working; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return working, nil
		}
	}
}
