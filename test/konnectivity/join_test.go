// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"example.com/extension-apiserver/internal/konnectivity/live"
	"example.com/extension-apiserver/pkg/envtest"
	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
)

// controlPlanePort is the port of the control plane endpoint.
const controlPlanePort = 8443

// TestSecondControlPlaneNode does to a second node what kubeadm does to its files: the node
// leaves, joins, and is upgraded, in the order of docs/konnectivity/operate.md. Agents follow the
// Leases. No call through the first kube-apiserver fails meanwhile, nor one through the second
// while it is ready.
func TestSecondControlPlaneNode(t *testing.T) {
	t.Parallel()
	tunnel := envtest.Tunnel{Mode: envtest.GRPCOverUDS}
	e := start(t, envtest.Options{Network: envtest.EndpointRouting, Unregistered: true,
		Tunnels: []envtest.Tunnel{tunnel, tunnel}})
	first, second := e.KubeAPIServers[0], e.KubeAPIServers[1]
	// The control plane endpoint leads to the kube-apiserver that is always ready; the agents'
	// address leads to both servers.
	balance(t, e, controlPlanePort, strings.TrimPrefix(first.URL, "https://"))
	balance(t, e, balancerPort, first.Address(), second.Address())
	issued := issueKubeconfig(t, e, fmt.Sprintf("https://%s:%d", envtest.NodeAddress, controlPlanePort), 0)
	tunnel.ServerArgs = []string{"--kubeconfig=" + issued.Out}
	for _, k := range e.KubeAPIServers {
		if err := e.SetTunnel(t.Context(), k, tunnel); err != nil {
			t.Fatal(err)
		}
	}
	agents := []*envtest.KonnectivityProcess{balanced(t, e, 2), balanced(t, e, 2)}
	if err := e.Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	configs, err := e.AdminConfigs()
	if err != nil {
		t.Fatal(err)
	}
	all := call(t, configs[0])
	events := watchWidgets(t, configs[0])

	// The kube-apiserver first: without its server it would report the API as unavailable to all
	// clients.
	if err := errors.Join(e.StopKubeAPIServer(second), second.ProxyServer.Stop()); err != nil {
		t.Fatal(err)
	}
	counted(t, e, 1, agents)

	// The server's files exist before kubeadm join; kube-apiserver starts when agents have found
	// the server.
	if err := second.ProxyServer.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	counted(t, e, 2, agents)
	if err := e.RestartKubeAPIServer(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	joined := call(t, configs[1])
	e.Eventually(t, "calls through the second kube-apiserver", envtest.WaitTimeout,
		func(context.Context) error { return joined.enough(50) })
	joined.end(t)

	// kubeadm upgrade rewrites the manifest of kube-apiserver, and leaves the server alone.
	if err := e.RestartKubeAPIServer(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	upgraded := call(t, configs[1])
	e.Eventually(t, "calls through the upgraded kube-apiserver", envtest.WaitTimeout,
		func(context.Context) error { return upgraded.enough(50) })
	upgraded.end(t)
	counted(t, e, 2, agents)

	client, err := dynamic.NewForConfig(configs[1])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Resource(v1.SchemeGroupVersion.WithResource("widgets")).Namespace("default").Create(t.Context(),
		widget("joined"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	expect(t, events, watch.Added) // through the first, by the watch that was open all the time
	t.Logf("%d calls", all.end(t))
}

// balance forwards a port of the node to the targets in turn.
func balance(t *testing.T, e *envtest.Environment, port int, targets ...string) {
	t.Helper()
	listener, err := e.ListenOnNode(port)
	if err != nil {
		t.Fatal(err)
	}
	var dial []func(context.Context) (net.Conn, error)
	for _, target := range targets {
		dial = append(dial, func(ctx context.Context) (net.Conn, error) { return e.DialFromNode(ctx, target) })
	}
	envtest.Forward(t, listener, dial...)
}

func watchWidgets(t *testing.T, config *rest.Config) watch.Interface {
	t.Helper()
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	events, err := client.Resource(v1.SchemeGroupVersion.WithResource("widgets")).Watch(t.Context(),
		metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(events.Stop)
	return events
}

// counted waits until the agents are connected to the servers of so many kube-apiservers, and the
// live check finds nothing.
func counted(t *testing.T, e *envtest.Environment, kubeAPIServers int, agents []*envtest.KonnectivityProcess) {
	t.Helper()
	began := time.Now()
	e.Eventually(t, fmt.Sprintf("the agents to have %d servers", kubeAPIServers), envtest.WaitTimeout,
		func(ctx context.Context) error {
			if found := live.Check(ctx, liveState(e, kubeAPIServers, agents...)); len(found) > 0 {
				return fmt.Errorf("%+v", found)
			}
			return nil
		})
	t.Logf("%d servers after %.1f s", kubeAPIServers, time.Since(began).Seconds())
}

// calls are sequential requests to the API on new connections, until one fails.
type calls struct {
	mu     sync.Mutex
	done   int
	failed error
	stop   context.CancelFunc
	ended  chan struct{}
}

func call(t *testing.T, config *rest.Config) *calls {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	c := &calls{stop: cancel, ended: make(chan struct{})}
	go func() {
		defer close(c.ended)
		for ctx.Err() == nil {
			err := get(ctx, config, gadgets+"?limit=1")
			c.mu.Lock()
			if err != nil && ctx.Err() == nil {
				c.failed = fmt.Errorf("call %d at %s: %w", c.done, time.Now().Format(time.TimeOnly), err)
				c.mu.Unlock()
				return
			}
			c.done++
			c.mu.Unlock()
		}
	}()
	t.Cleanup(func() { cancel(); <-c.ended })
	return c
}

func (c *calls) enough(want int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed != nil || c.done >= want {
		return nil // end reports the failure
	}
	return fmt.Errorf("%d of %d", c.done, want)
}

// end stops the calls. It fails the test if one failed, and returns their number.
func (c *calls) end(t *testing.T) int {
	t.Helper()
	c.stop()
	<-c.ended
	if c.failed != nil {
		t.Error(c.failed)
	}
	return c.done
}
