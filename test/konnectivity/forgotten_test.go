// SPDX-License-Identifier: Apache-2.0

//go:build measure

package konnectivity

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics/testutil"

	"example.com/extension-apiserver/pkg/envtest"
)

const (
	// stalled is more than the 208 KiB that a Unix socket accepts from the server, or the about
	// 170 KiB of a gRPC stream and its client. It leaves room in the 150 packets that the server
	// holds for an agent, so that the server still notices when the agent disconnects.
	stalled = 420 << 10
	// rounds is the number of rounds, tunnels the number of the test's tunnels in each, and
	// earlier the number of tunnels before them. A server identifies tunnels by the agent's ID and
	// a number that starts at 1 with each connection of the agent. A tunnel with the same number
	// would replace the stalled one.
	rounds, tunnels, earlier = 5, 10, 40
)

// lostTunnels causes a server to lose tunnels.
type lostTunnels struct {
	e    *envtest.Environment
	mode envtest.Mode
	dialer
	agents cable
}

// TestMeasureLostTunnels measures a known bug: an agent loses its connection and opens another with
// the same ID, while the server still tries to send data of the first to a stalled reader. When
// that ends, the server forgets all tunnels of the agent
// (https://github.com/kubernetes-sigs/apiserver-network-proxy/pull/888). HTTP CONNECT behaves the
// same over a socket and over TCP.
func TestMeasureLostTunnels(t *testing.T) {
	for _, mode := range []envtest.Mode{envtest.GRPCOverUDS, envtest.HTTPConnectOverUDS} {
		t.Run(string(mode), func(t *testing.T) {
			e := start(t, envtest.Options{Network: envtest.EndpointRouting, Unregistered: true,
				Tunnels: []envtest.Tunnel{{Mode: mode}}})
			(&lostTunnels{e: e, mode: mode, dialer: newDialer(e, mode)}).measure(t)
		})
	}
}

func (f *lostTunnels) measure(t *testing.T) {
	endpoint(t, f.e)
	listener, err := f.e.ListenOnNode(balancerPort)
	if err != nil {
		t.Fatal(err)
	}
	envtest.Forward(t, listener, func(ctx context.Context) (net.Conn, error) { return f.agents.dial(ctx, f.e) })
	agent := balanced(t, f.e, 1)
	if err := f.e.Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: before: %s", f.mode, f.held(t))
	var all []net.Conn
	for n := range rounds {
		all = append(all, f.round(t)...)
		t.Logf("%s: round %d: %s", f.mode, n+1, f.held(t))
		took := recovered(t, []*rest.Config{f.e.Admin(t)}, time.Now())
		t.Logf("%s: round %d: our API responds %.1f s later; %s", f.mode, n+1, took[0].Seconds(), f.held(t))
	}
	agent.Kill()
	f.eventually(t, "the server to have no agent", func(metrics testutil.Metrics) error {
		if sum(metrics, serverMetric+"ready_backends", nil) > 0 {
			return errors.New("it has one")
		}
		return nil
	})
	later := time.Now().Add(settle)
	if err := wait.PollUntilContextCancel(t.Context(), time.Second, true, func(context.Context) (bool, error) {
		return time.Now().After(later), nil
	}); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: a minute without an agent: %s", f.mode, f.held(t))
	for _, conn := range all {
		go func() { _ = conn.Close() }() // with gRPC it waits 10 s for a response
	}
	f.eventually(t, "the server to close the tunnels whose clients closed them", func(metrics testutil.Metrics) error {
		if open := f.clients(metrics); open >= tunnels {
			return fmt.Errorf("it has %v", open)
		}
		return nil
	})
	t.Logf("%s: after their clients closed them: %s", f.mode, f.held(t))
}

// round causes the server to lose tunnels, and returns those of the test, which are still open.
func (f *lostTunnels) round(t *testing.T) []net.Conn {
	t.Helper()
	for range earlier {
		if err := f.dial(t).Close(); err != nil {
			t.Fatal(err)
		}
	}
	before := fromAgent(f.metrics(t))
	// With gRPC the server removes a tunnel whose client has disconnected from its table. Then
	// another tunnel still belongs to the lost connection.
	idle, slow := f.dial(t), f.dial(t)
	defer idle.Close()
	if _, err := slow.Write([]byte("flood")); err != nil {
		t.Fatal(err)
	}
	f.eventually(t, "the server to have what the reader does not take", func(metrics testutil.Metrics) error {
		if got := fromAgent(metrics) - before; got < stalled/(4<<10) {
			return fmt.Errorf("it has %v packets", got)
		}
		return nil
	})
	began := time.Now()
	f.agents.pull()
	open := f.reconnected(t)
	t.Logf("%s: while the reader stalls: %d of %d tunnels echo, %s", f.mode, echoes(t, open), len(open), f.held(t))
	if f.mode != envtest.GRPCOverUDS {
		// With gRPC kube-apiserver is not notified that a tunnel is lost. Its ping fails after 45
		// s, and its client closes a tunnel whose reader stalls after 10 s.
		responded := recovered(t, []*rest.Config{f.e.Admin(t)}, began)[0]
		t.Logf("%s: our API responds %.1f s after the connection was lost", f.mode, responded.Seconds())
	}
	_ = slow.Close() // with gRPC it fails, because there is no response
	f.eventually(t, "the server to lose the tunnels", func(metrics testutil.Metrics) error {
		if known := sum(metrics, serverMetric+"established_connections", nil); known >= tunnels {
			return fmt.Errorf("it knows %v", known)
		}
		return nil
	})
	t.Logf("%s: when it has gone: %d of %d tunnels echo", f.mode, echoes(t, open), len(open))
	return open
}

// reconnected opens tunnels through the agent's next connection.
func (f *lostTunnels) reconnected(t *testing.T) []net.Conn {
	t.Helper()
	var open []net.Conn
	f.e.Eventually(t, "the agent to be connected again", envtest.WaitTimeout, func(ctx context.Context) error {
		conn, err := f.dialer(ctx)
		if err == nil {
			open = append(open, conn)
		}
		return err
	})
	for len(open) < tunnels {
		open = append(open, f.dial(t))
	}
	return open
}

func (f *lostTunnels) metrics(t *testing.T) testutil.Metrics {
	t.Helper()
	metrics, err := metricsOf(t.Context(), only(f.e).ProxyServer)
	if err != nil {
		t.Fatal(err)
	}
	return metrics
}

func (f *lostTunnels) eventually(t *testing.T, what string, check func(testutil.Metrics) error) {
	t.Helper()
	f.e.Eventually(t, what, envtest.WaitTimeout, func(ctx context.Context) error {
		metrics, err := metricsOf(ctx, only(f.e).ProxyServer)
		if err != nil {
			return err
		}
		return check(metrics)
	})
}

// clients returns the number of connections of kube-apiserver and of the test to the server.
func (f *lostTunnels) clients(metrics testutil.Metrics) float64 {
	if f.mode == envtest.GRPCOverUDS {
		return sum(metrics, serverMetric+"grpc_connections", labels{"service_method": "Proxy"})
	}
	return sum(metrics, serverMetric+"http_connections", nil)
}

// held formats the number of tunnels that the server knows, and the resources that it holds.
func (f *lostTunnels) held(t *testing.T) string {
	t.Helper()
	metrics := f.metrics(t)
	return fmt.Sprintf("%v established, %v clients, %+v", sum(metrics, serverMetric+"established_connections", nil),
		f.clients(metrics), heldIn(metrics))
}

func fromAgent(metrics testutil.Metrics) float64 {
	return sum(metrics, serverMetric+"stream_packets_total", labels{"segment": "from_agent", "packet_type": "DATA"})
}

// cable is the connection of agents to the server.
type cable struct {
	mu   sync.Mutex
	conn net.Conn
}

func (c *cable) dial(ctx context.Context, e *envtest.Environment) (net.Conn, error) {
	conn, err := e.DialFromNode(ctx, only(e).Address())
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conn = conn
	return conn, err
}

// pull closes the agent's connection.
func (c *cable) pull() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conn.Close()
}
