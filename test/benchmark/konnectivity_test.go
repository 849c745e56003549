// SPDX-License-Identifier: Apache-2.0

package benchmark

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"testing"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"example.com/extension-apiserver/pkg/envtest"
)

const (
	rounds = 3
	// gets, lists and events are the numbers of requests and watch events per round and route.
	gets, lists, events = 2000, 20, 300
	// mostTimes limits the p50 of a small get through a tunnel, as a multiple of the direct
	// route's p50.
	mostTimes = 2.0
)

// route is a kube-apiserver with one connection to it.
type route struct {
	name   string
	config *rest.Config
	client *http.Client
	// took holds the durations of one round, p50 and p99 the percentiles of each round.
	took     []time.Duration
	p50, p99 []time.Duration
	watched  watched
}

// BenchmarkKonnectivity compares each mode with a direct route: four kube-apiservers on one etcd,
// in front of one extension API server. One worker sends to one route after the other, so that
// other load on the machine affects all routes equally.
func BenchmarkKonnectivity(b *testing.B) {
	if os.Getuid() != 0 {
		b.Skip("network namespaces need root: run the benchmark as root")
	}
	tunnels := []envtest.Tunnel{{Routed: true}}
	names := []string{"direct"}
	for _, mode := range envtest.Modes() {
		tunnels = append(tunnels, envtest.Tunnel{Mode: mode, Agents: 1, ServerCount: 1})
		names = append(names, string(mode))
	}
	e := envtest.New(b, envtest.Options{Network: envtest.EndpointRouting, Tunnels: tunnels})
	configs, err := e.AdminConfigs()
	if err != nil {
		b.Fatal(err)
	}
	var routes []*route
	for i, config := range configs {
		client, err := rest.HTTPClientFor(config)
		if err != nil {
			b.Fatal(err)
		}
		routes = append(routes, &route{name: names[i], config: config, client: client})
	}
	client, err := dynamic.NewForConfig(configs[0])
	if err != nil {
		b.Fatal(err)
	}
	create(b, client, "small", "")
	for b.Loop() {
		getsOf(b, routes)
		watchesOf(b, routes, client)
		bytes := createBig(b, client)
		listsOf(b, routes, bytes)
	}
}

// measure sends times requests for the path to each route, in turn, in each of several rounds.
func measure(b *testing.B, routes []*route, path string, times int) {
	for _, r := range routes {
		r.p50, r.p99 = nil, nil
	}
	for range rounds {
		for _, r := range routes {
			r.took = r.took[:0]
		}
		for range times {
			for _, r := range routes {
				began := time.Now()
				if err := fetch(b.Context(), r.client, r.config.Host+path); err != nil {
					b.Fatalf("%s: %v", r.name, err)
				}
				r.took = append(r.took, time.Since(began))
			}
		}
		for _, r := range routes {
			slices.Sort(r.took)
			r.p50, r.p99 = append(r.p50, quantile(r.took, 50)), append(r.p99, quantile(r.took, 99))
		}
	}
}

func quantile(sorted []time.Duration, percent int) time.Duration {
	return sorted[(len(sorted)-1)*percent/100]
}

func median(values []time.Duration) time.Duration {
	values = slices.Sorted(slices.Values(values))
	return values[len(values)/2]
}

func fetch(ctx context.Context, client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("Accept-Encoding", "identity")
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", url, resp.Status)
	}
	return nil
}

// getsOf fails the benchmark if a get through a tunnel exceeds mostTimes.
func getsOf(b *testing.B, routes []*route) {
	measure(b, routes, gadgets+"/small", gets)
	direct := median(routes[0].p50)
	for _, r := range routes {
		p50, p99 := median(r.p50), median(r.p99)
		times := float64(p50) / float64(direct)
		b.Logf("get    %-18s p50 %-10s p99 %-10s %5.0f/s  p50 %.2f x direct", r.name, round(p50), round(p99),
			1/p50.Seconds(), times)
		b.ReportMetric(times, r.name+"-get-x")
		if times > mostTimes {
			b.Errorf("get through %s: p50 is %.2f times that of the direct route, want at most %.1f", r.name,
				times, mostTimes)
		}
	}
}

func listsOf(b *testing.B, routes []*route, bytes int) {
	measure(b, routes, gadgets, lists)
	direct := median(routes[0].p50)
	for _, r := range routes {
		p50, p99 := median(r.p50), median(r.p99)
		times := float64(p50) / float64(direct)
		b.Logf("list   %-18s p50 %-10s p99 %-10s %5.0f MB/s  p50 %.2f x direct", r.name, round(p50), round(p99),
			float64(bytes)/1e6/p50.Seconds(), times)
		b.ReportMetric(times, r.name+"-list-x")
	}
}

func round(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }
