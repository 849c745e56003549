// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"example.com/extension-apiserver/pkg/envtest"
)

// requestTimeout is the time after which a request is aborted and retried, because a user would not
// wait longer.
const requestTimeout = 2 * time.Second

// fault breaks every tunnel of an environment, and repairs it.
type fault struct {
	name string
	// inject breaks the tunnel, and mend repairs it. bound is the maximum recovery time, from the
	// start of mend, on a busy machine.
	inject, mend func(t *testing.T, e *envtest.Environment)
	bound        time.Duration
}

func faults() []fault {
	return []fault{
		{"agent killed and started again", each(func(_ context.Context, _ *envtest.Environment,
			k *envtest.KubeAPIServer) error {
			k.Agents[0].Kill()
			return nil
		}),
			each(func(ctx context.Context, _ *envtest.Environment, k *envtest.KubeAPIServer) error {
				return k.Agents[0].Start(ctx)
			}), time.Minute},
		{"server killed and started again", each(func(_ context.Context, _ *envtest.Environment,
			k *envtest.KubeAPIServer) error {
			k.ProxyServer.Kill()
			return nil
		}),
			// An agent first looks for its server every 5 s, and later up to every 30 s.
			each(func(ctx context.Context, _ *envtest.Environment, k *envtest.KubeAPIServer) error {
				return k.ProxyServer.Start(ctx)
			}), 2 * time.Minute},
		// The server pings after 30 s and waits for 20 s; kube-apiserver pings its connection
		// after 30 s and waits for 15 s; a dial to the frozen agent is given up after 10 s.
		{"agent frozen for good, another started", each(freeze), each(another), 3 * time.Minute},
		{"link cut until the server gives its agent up", cut, func(t *testing.T, e *envtest.Environment) {
			if err := e.SetLink(true); err != nil {
				t.Fatal(err)
			}
		}, 2 * time.Minute},
	}
}

// each calls f for each kube-apiserver.
func each(f func(context.Context, *envtest.Environment,
	*envtest.KubeAPIServer) error) func(*testing.T, *envtest.Environment) {
	return func(t *testing.T, e *envtest.Environment) {
		t.Helper()
		for _, k := range e.KubeAPIServers {
			if err := f(t.Context(), e, k); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func freeze(_ context.Context, _ *envtest.Environment, k *envtest.KubeAPIServer) error {
	return k.Agents[0].Freeze()
}

// another starts an agent beside the frozen one, which the environment no longer tracks.
func another(ctx context.Context, e *envtest.Environment, k *envtest.KubeAPIServer) error {
	a, err := e.NewAgent(ctx, k)
	if err != nil {
		return err
	}
	k.Agents[0] = a
	return a.Start(ctx)
}

// cut cuts the link, and waits until each server has given up its agent, which is when a short cut
// becomes a long one.
func cut(t *testing.T, e *envtest.Environment) {
	t.Helper()
	if err := e.SetLink(false); err != nil {
		t.Fatal(err)
	}
	for _, k := range e.KubeAPIServers {
		e.Eventually(t, "the server to give its agent up", envtest.WaitTimeout, func(ctx context.Context) error {
			metrics, err := metricsOf(ctx, k.ProxyServer)
			if err == nil && sum(metrics, serverMetric+"ready_backends", nil) > 0 {
				err = errors.New("it has one")
			}
			return err
		})
	}
}

// suffer injects each fault, waits until the API responds again through each kube-apiserver, and
// checks the recovery times.
func suffer(t *testing.T, e *envtest.Environment) {
	configs, err := e.AdminConfigs()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range faults() {
		t.Run(f.name, func(t *testing.T) {
			f.inject(t, e)
			for _, config := range configs {
				e.Eventually(t, "a request to fail", envtest.WaitTimeout, func(ctx context.Context) error {
					ctx, cancel := context.WithTimeout(ctx, requestTimeout)
					defer cancel()
					if err := get(ctx, config, gadgets+"?limit=1"); err == nil {
						return errors.New("it succeeded")
					}
					return nil
				})
				// kube-apiserver's own APIs do not depend on any tunnel.
				if err := get(t.Context(), config, "/api/v1/namespaces?limit=1"); err != nil {
					t.Errorf("another API, while the tunnel is broken: %v", err)
				}
			}
			began := time.Now()
			f.mend(t, e)
			for i, took := range recovered(t, configs, began) {
				t.Logf("%s, %s: recovered after %.1f s", f.name, e.KubeAPIServers[i].URL, took.Seconds())
				if took > f.bound {
					t.Errorf("%s: recovered after %s, want at most %s", f.name, took, f.bound)
				}
			}
		})
	}
}

// recovered waits at each kube-apiserver for five successful responses in a row. It returns the
// time between began and the request of the first of them.
func recovered(t *testing.T, configs []*rest.Config, began time.Time) []time.Duration {
	t.Helper()
	const inARow = 5
	took, errs := make([]time.Duration, len(configs)), make([]error, len(configs))
	var all sync.WaitGroup
	for i, config := range configs {
		all.Go(func() {
			good := 0
			var last error
			err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 2*envtest.WaitTimeout, true,
				func(ctx context.Context) (bool, error) {
					ctx, cancel := context.WithTimeout(ctx, requestTimeout)
					defer cancel()
					sent := time.Since(began)
					if last = get(ctx, config, gadgets+"?limit=1"); last != nil {
						good = 0
						return false, nil
					}
					if good++; good == 1 {
						took[i] = sent
					}
					return good == inARow, nil
				})
			if err != nil {
				errs[i] = fmt.Errorf("wait for our API at kube-apiserver %d: %w: %w", i+1, err, last)
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return took
}

// TestRecovery checks that the tunnels of all modes recover after each fault. It breaks all of
// them at once.
func TestRecovery(t *testing.T) {
	t.Parallel()
	var tunnels []envtest.Tunnel
	for _, mode := range envtest.Modes() {
		tunnels = append(tunnels, envtest.Tunnel{Mode: mode, Agents: 1, ServerCount: 1})
	}
	suffer(t, start(t, envtest.Options{Network: envtest.EndpointRouting, Tunnels: tunnels}))
}
