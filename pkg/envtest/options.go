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

// Network is how the processes reach each other.
type Network string

const (
	// Loopback puts everything on 127.0.0.1, our server behind a Service of type ExternalName. Needs no rights.
	Loopback Network = "Loopback"
	// EndpointRouting makes every host a network namespace with an address of its own, and kube-apiserver picks one of
	// the Service's endpoints itself (--enable-aggregator-routing). Needs the right to make network namespaces.
	EndpointRouting Network = "EndpointRouting"
	// ClusterIPRouting is EndpointRouting, but kube-apiserver connects to the Service's ClusterIP and a real kube-proxy
	// on its host picks the endpoint. Needs nft too.
	ClusterIPRouting Network = "ClusterIPRouting"
)

// Options say what to start. The zero value is a control plane on loopback with one server that embeds its etcd.
type Options struct {
	// Dir keeps state, logs and kubeconfigs; a second Start on it finds what the first stored. Empty means a temporary
	// directory that Stop removes.
	Dir string
	// Network is Loopback unless set.
	Network Network
	// KubeAPIServers is how many kube-apiservers share the control plane: 1 to 4. Default 1, or one for each tunnel;
	// more than one needs a network of hosts.
	KubeAPIServers int
	// Tunnels says, for each kube-apiserver in its order, how konnectivity carries it to our servers, which are then on
	// a node that no kube-apiserver has a route to. It needs a network of hosts. Empty means that all reach each other.
	Tunnels []Tunnel
	// Servers is how many of our servers stand behind the Service. Default 1; more need a network of hosts and share an
	// external etcd.
	Servers int
	// ExternalEtcd gives our servers an etcd over TLS instead of the embedded one.
	ExternalEtcd bool
	// KubeAPIServerArgs and ServerArgs are added to the arguments of each kube-apiserver and each of our servers, and
	// replace those of the same flag. Each is one word: --flag=value.
	KubeAPIServerArgs, ServerArgs []string
	// ServerEnv is added to the environment of each of our servers: NAME=value.
	ServerEnv []string
	// FrontProxyPerHost gives each kube-apiserver its own directory with the front proxy's certificate, key and CA, all
	// of the same CA, as where each host has a PKI directory: KubeAPIServer.FrontProxyClientDir. Otherwise all read the
	// one of certgen init.
	FrontProxyPerHost bool
	// Server is our servers' command: a main package, as Build takes it, or the absolute path of a file. Default: the
	// server of the sample, which serves workshop.example.com. One that links no embedded etcd needs ExternalEtcd.
	Server string
	// ServerRights are rights that the servers have beside those of the manifests and of their API (apiserver.API's
	// Permissions).
	ServerRights []rbacv1.PolicyRule
	// Unregistered stops before the API is registered, for tests of what happens until then.
	Unregistered bool
	// Progress gets a line for each step; nil means none. Where programs must be built, which can take minutes, nil
	// means os.Stderr.
	Progress io.Writer
}

// sampleServer is the package of the server that serves the sample API.
const sampleServer = kit + "/cmd/extension-apiserver"

// maxKubeAPIServers: the modes of konnectivity and no tunnel at all, side by side.
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

// override adds arguments to a command and takes out the earlier ones of the same flags: a flag that is a list would
// get the values of both.
func override(command, args []string) []string {
	flag := func(arg string) string { name, _, _ := strings.Cut(arg, "="); return name }
	command = slices.DeleteFunc(command, func(have string) bool {
		return slices.ContainsFunc(args, func(arg string) bool { return flag(arg) == flag(have) })
	})
	return append(command, args...)
}

// stepProgress and buildProgress are where the lines about steps, and about what is built, go.
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

// lineWriter passes on one write at a time: steps and builds tell of themselves at once.
type lineWriter struct {
	mu sync.Mutex
	to io.Writer
}

func (w *lineWriter) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to.Write(line)
}

// moduleRoot is the directory of the module of the working directory, which in a test is that of its package, or the
// working directory itself where there is none.
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
