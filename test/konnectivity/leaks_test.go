// SPDX-License-Identifier: Apache-2.0

//go:build measure

package konnectivity

import (
	"context"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics/testutil"

	"example.com/extension-apiserver/pkg/envtest"
)

const (
	// warmUp is the number of restarts before the first count: caches and connection pools fill.
	warmUp, restarts = 10, 100
	// settle is how long connections may take to close: kube-apiserver detects a dead one after 45
	// s.
	settle = time.Minute
)

// held is the number of goroutines and descriptors of a process.
type held struct{ goroutines, descriptors float64 }

func heldIn(metrics testutil.Metrics) held {
	return held{sum(metrics, "go_goroutines", nil), sum(metrics, "process_open_fds", nil)}
}

func (h held) least(other held) held {
	return held{min(h.goroutines, other.goroutines), min(h.descriptors, other.descriptors)}
}

// TestMeasureLeaks measures the goroutines and descriptors of kube-apiserver and the konnectivity
// server after many restarts of the agent. It takes the minimum within a minute, which excludes
// temporary ones.
func TestMeasureLeaks(t *testing.T) {
	for _, mode := range envtest.Modes() {
		t.Run(string(mode), func(t *testing.T) {
			e := start(t, envtest.Options{Network: envtest.EndpointRouting,
				Tunnels: []envtest.Tunnel{{Mode: mode, Agents: 1}}})
			k, config := only(e), e.Admin(t)
			restart := func(times int) {
				for range times {
					k.Agents[0].Kill()
					if err := k.Agents[0].Start(t.Context()); err != nil {
						t.Fatal(err)
					}
					recovered(t, []*rest.Config{config}, time.Now())
				}
			}
			restart(warmUp)
			apiServer, server := least(t, e)
			t.Logf("%s, after %3d restarts: kube-apiserver %+v, konnectivity server %+v", mode, warmUp,
				apiServer, server)
			for n := warmUp + restarts/2; n <= warmUp+restarts; n += restarts / 2 {
				restart(restarts / 2)
				a, s := least(t, e)
				t.Logf("%s, after %3d restarts: kube-apiserver %+v, konnectivity server %+v", mode, n, a, s)
				// One for each restart would be a leak. Half of that is more than the variation.
				if a.descriptors > apiServer.descriptors+restarts/2 || s.descriptors > server.descriptors+restarts/2 {
					t.Errorf("descriptors grew with each restart: from %+v and %+v to %+v and %+v",
						apiServer, server, a, s)
				}
			}
		})
	}
}

// least returns the minimum of each process within a minute.
func least(t *testing.T, e *envtest.Environment) (apiServer, server held) {
	t.Helper()
	first := true
	deadline := time.Now().Add(settle)
	if err := wait.PollUntilContextCancel(t.Context(), time.Second, true, func(ctx context.Context) (bool, error) {
		a, err := apiServerMetrics(ctx, t, e)
		if err != nil {
			return false, err
		}
		s, err := metricsOf(ctx, only(e).ProxyServer)
		if err != nil {
			return false, err
		}
		if first {
			apiServer, server, first = heldIn(a), heldIn(s), false
		}
		apiServer, server = apiServer.least(heldIn(a)), server.least(heldIn(s))
		return time.Now().After(deadline), nil
	}); err != nil {
		t.Fatal(err)
	}
	return apiServer, server
}
