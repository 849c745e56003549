// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"example.com/extension-apiserver/pkg/envtest"
	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
	"example.com/extension-apiserver/test/rollout/load"
)

const (
	// perRollout and inAll are the minimum numbers of requests during each replacement of a
	// server, and in total.
	perRollout = 300
	inAll      = 20_000
	rounds     = 2
	delay      = 15 * time.Second // the value in manifests/base
)

// TestRollout replaces two servers one after the other, repeatedly, under load.
func TestRollout(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("network namespaces need root: run the tests as root")
	}
	for _, tc := range []struct {
		network envtest.Network
		// With endpoint routing, kube-apiserver picks an endpoint for each request. A server that
		// is not ready gets no requests, so its connection is idle when it is closed. Behind a
		// ClusterIP, kube-apiserver knows one address, and uses the connection until it is
		// closed.
		tolerate func(method string, err error) bool
	}{
		{envtest.EndpointRouting, nil},
		{envtest.ClusterIPRouting, load.UnsentWrite},
	} {
		t.Run(string(tc.network), func(t *testing.T) {
			least, requests := rounds, int64(inAll)
			if testing.Short() {
				least, requests = 1, 0
			}
			e := envtest.New(t, envtest.Options{Network: tc.network, KubeAPIServers: 2, Servers: 2,
				ServerArgs: []string{"--shutdown-delay-duration=" + delay.String()}})
			configs, err := e.AdminConfigs()
			if err != nil {
				t.Fatal(err)
			}
			routes := followReadiness(t, e)
			l := load.Start(t, load.Options{Through: configs, Kind: v1.SchemeGroupVersion.WithKind("Gadget"),
				Prefix: "rollout", Tolerate: tc.tolerate})
			l.Await(perRollout)
			for round := 1; round <= least || l.Total() < requests; round++ {
				replaceServers(t, e, e.Servers[:2], l, routes, fmt.Sprintf("round %d, ", round))
			}
			l.End()
		})
	}
}

// replaceServers replaces the servers one after the other, as a Deployment does.
func replaceServers(t *testing.T, e *envtest.Environment, servers []*envtest.Server, l *load.Load, routes *routes,
	phase string) {
	t.Helper()
	for _, s := range servers {
		l.Enter(phase + s.Name)
		if err := e.StopServer(s); err != nil {
			t.Error(err)
		}
		if err := e.StartServer(t.Context(), s); err != nil {
			l.End()
			t.Fatal(err)
		}
		routes.await(s)
		l.Await(perRollout)
	}
}

// routes maintains the Service's endpoints as a cluster does: they are the servers whose
// readiness probe succeeds.
type routes struct {
	t     *testing.T
	e     *envtest.Environment
	mu    sync.Mutex
	ready map[*envtest.Server]bool // the current endpoints
}

// followReadiness probes each server independently, as a kubelet does, so that a slow response of
// one does not delay the detection of another.
func followReadiness(t *testing.T, e *envtest.Environment) *routes {
	r := &routes{t: t, e: e, ready: map[*envtest.Server]bool{}}
	var probes sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(func() { stop(); probes.Wait() })
	for _, s := range e.Servers {
		client, err := s.Client(e)
		if err != nil {
			t.Fatal(err)
		}
		client.Timeout = 5 * time.Second // the timeout of the manifests' readinessProbe
		r.ready[s] = true
		probes.Go(func() { r.probe(ctx, client, s) })
	}
	return r
}

func (r *routes) probe(ctx context.Context, client *http.Client, s *envtest.Server) {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	// This is the manifests' failureThreshold: a single late response must not remove the only
	// remaining server.
	for failed, threshold := 0, 2; ctx.Err() == nil; {
		if isReady(ctx, client, s) {
			failed = 0
		} else {
			failed++
		}
		if failed == 0 || failed >= threshold {
			r.set(ctx, s, failed == 0)
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

func isReady(ctx context.Context, client *http.Client, s *envtest.Server) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/readyz", nil)
	if err != nil {
		return false
	}
	resp, err := client.Do(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

func (r *routes) set(ctx context.Context, s *envtest.Server, ready bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ready[s] == ready || ctx.Err() != nil {
		return
	}
	r.ready[s] = ready
	var endpoints []*envtest.Server
	for _, s := range r.e.Servers {
		if r.ready[s] {
			endpoints = append(endpoints, s)
		}
	}
	if err := r.e.SetEndpoints(ctx, endpoints...); err != nil && ctx.Err() == nil {
		r.ready[s] = !ready // the next probe retries
		r.t.Errorf("set endpoints: %v", err)
	}
}

// await returns when the server is an endpoint again.
func (r *routes) await(s *envtest.Server) {
	r.t.Helper()
	r.e.Eventually(r.t, s.Name+" to be an endpoint again", envtest.WaitTimeout, func(context.Context) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if !r.ready[s] {
			return errors.New("it is none")
		}
		return nil
	})
}
