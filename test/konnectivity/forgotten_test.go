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

	"example.com/extension-apiserver/test/env"
)

const (
	// stalled is more than the 208 KiB that a Unix socket takes from the server, and leaves room in the 150 packets that the server
	// holds for an agent, so that it still notices when the agent goes.
	stalled = 420 << 10
	// rounds, and tunnels of the test in each. earlier are those before: a server knows tunnels by the agent's ID and a number that
	// begins at 1 with each connection of the agent, and one of the same number would take the place of the stalled one.
	rounds, tunnels, earlier = 5, 10, 40
)

// TestMeasureForgotten: an agent loses its connection and makes another, with the same ID, while the server still tries to give a reader
// that has stalled what came through the first. When that ends, the server forgets all tunnels of the agent
// (https://github.com/kubernetes-sigs/apiserver-network-proxy/pull/888).
func TestMeasureForgotten(t *testing.T) {
	e := start(t, env.Options{Network: env.EndpointRouting, Unregistered: true, Tunnels: []env.Tunnel{{Mode: env.HTTPConnectOverUDS}}})
	endpoint(t, e)
	agents := &cable{}
	listener, err := e.ListenOnNode(balancerPort)
	if err != nil {
		t.Fatal(err)
	}
	env.Forward(t, listener, func(ctx context.Context) (net.Conn, error) { return agents.dial(ctx, e) })
	agent := balanced(t, e, 1)
	if err := e.Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("before: %s", tunnelsOf(t, e))
	var all []net.Conn
	for n := range rounds {
		all = append(all, forget(t, e, agents)...)
		t.Logf("round %d: %s", n+1, tunnelsOf(t, e))
		took := recovered(t, []*rest.Config{adminConfig(t, e)}, time.Now())
		t.Logf("round %d: our API answers %.1f s later; %s", n+1, took[0].Seconds(), tunnelsOf(t, e))
	}
	agent.Kill()
	e.Eventually(t, "the server to have no agent", patience, func(ctx context.Context) error {
		metrics, err := metricsOf(ctx, only(e).ProxyServer)
		if err == nil && sum(metrics, serverMetric+"ready_backends", nil) > 0 {
			err = errors.New("it has one")
		}
		return err
	})
	later := time.Now().Add(settle)
	if err := wait.PollUntilContextCancel(t.Context(), time.Second, true, func(context.Context) (bool, error) {
		return time.Now().After(later), nil
	}); err != nil {
		t.Fatal(err)
	}
	t.Logf("a minute without an agent: %s", tunnelsOf(t, e))
	for _, conn := range all {
		_ = conn.Close()
	}
	e.Eventually(t, "the server to close the tunnels whose clients closed them", patience, func(ctx context.Context) error {
		metrics, err := metricsOf(ctx, only(e).ProxyServer)
		if open := sum(metrics, serverMetric+"http_connections", nil); err == nil && open >= tunnels {
			err = fmt.Errorf("it has %v", open)
		}
		return err
	})
	t.Logf("after their clients closed them: %s", tunnelsOf(t, e))
}

// forget makes the server forget tunnels, and returns those of the test, which are still open.
func forget(t *testing.T, e *env.Environment, agents *cable) []net.Conn {
	t.Helper()
	for range earlier {
		if err := connect(t, e).Close(); err != nil {
			t.Fatal(err)
		}
	}
	before := fromAgent(t, e)
	slow := connect(t, e)
	if _, err := slow.Write([]byte("flood")); err != nil {
		t.Fatal(err)
	}
	e.Eventually(t, "the server to have what the reader does not take", patience, func(context.Context) error {
		if got := fromAgent(t, e) - before; got < stalled/(4<<10) {
			return fmt.Errorf("it has %v packets", got)
		}
		return nil
	})
	began := time.Now()
	agents.pull()
	var open []net.Conn
	e.Eventually(t, "the agent to be connected again", patience, func(ctx context.Context) error {
		conn, err := tryConnect(ctx, e)
		if err == nil {
			open = append(open, conn)
		}
		return err
	})
	for len(open) < tunnels {
		open = append(open, connect(t, e))
	}
	answered := recovered(t, []*rest.Config{adminConfig(t, e)}, began)[0]
	t.Logf("while the reader stalls: our API answers %.1f s after the connection was lost, %d of %d tunnels echo, %s",
		answered.Seconds(), echoes(t, open), len(open), tunnelsOf(t, e))
	slow.Close()
	e.Eventually(t, "the server to forget the tunnels", patience, func(ctx context.Context) error {
		metrics, err := metricsOf(ctx, only(e).ProxyServer)
		if known := sum(metrics, serverMetric+"established_connections", nil); err == nil && known >= tunnels {
			err = fmt.Errorf("it knows %v", known)
		}
		return err
	})
	t.Logf("when it has gone: %d of %d tunnels echo", echoes(t, open), len(open))
	return open
}

// cable is what agents are connected by.
type cable struct {
	mu   sync.Mutex
	conn net.Conn
}

func (c *cable) dial(ctx context.Context, e *env.Environment) (net.Conn, error) {
	conn, err := e.DialFromNode(ctx, only(e).Address())
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conn = conn
	return conn, err
}

// pull ends the agent's connection.
func (c *cable) pull() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conn.Close()
}

func serverMetrics(t *testing.T, e *env.Environment) testutil.Metrics {
	t.Helper()
	metrics, err := metricsOf(t.Context(), only(e).ProxyServer)
	if err != nil {
		t.Fatal(err)
	}
	return metrics
}

func fromAgent(t *testing.T, e *env.Environment) float64 {
	t.Helper()
	return sum(serverMetrics(t, e), serverMetric+"stream_packets_total", labels{"segment": "from_agent", "packet_type": "DATA"})
}

// tunnelsOf is what the server knows of its tunnels and what it holds, in words.
func tunnelsOf(t *testing.T, e *env.Environment) string {
	t.Helper()
	metrics := serverMetrics(t, e)
	return fmt.Sprintf("%v established, %v HTTP connections, %+v", sum(metrics, serverMetric+"established_connections", nil),
		sum(metrics, serverMetric+"http_connections", nil), heldIn(metrics))
}
