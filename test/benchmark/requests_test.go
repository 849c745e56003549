// SPDX-License-Identifier: Apache-2.0

package benchmark

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/client-go/rest"

	"example.com/extension-apiserver/pkg/envtest"
)

var servers = flag.String("servers", "",
	"Programs of servers of the sample, separated by commas. Default: that of the checkout.")

// BenchmarkRequests measures the cost of a request for the server: CPU time and allocations of
// the whole process. One client sends requests directly to the server. Several servers are
// measured one after the other, each with its own control plane.
func BenchmarkRequests(b *testing.B) {
	for program := range strings.SplitSeq(*servers, ",") {
		b.Run("server="+filepath.Base(program), func(b *testing.B) {
			s := newSender(b, program)
			for i := range listed {
				s.send(b, http.MethodPost, s.path("v1", ""), widget(fmt.Sprintf("listed-%d", i), "v1"))
			}
			for _, version := range []string{"v1", "v1alpha1"} {
				b.Run("get/"+version, s.requests(func(b *testing.B, _ int) {
					s.send(b, http.MethodGet, s.path(version, "listed-0"), "")
				}))
				b.Run("list/"+version, s.requests(func(b *testing.B, _ int) {
					s.send(b, http.MethodGet, s.path(version, ""), "")
				}))
			}
			b.Run("create", s.requests(func(b *testing.B, i int) {
				s.send(b, http.MethodPost, s.path("v1", ""), widget(fmt.Sprintf("created-%d", i), "v1"))
			}))
			b.Run("update", s.requests(func(b *testing.B, i int) {
				text := strings.Replace(widget("listed-0", "v1"), `"replicas":2`, fmt.Sprintf(`"replicas":%d`, i%2+1), 1)
				s.send(b, http.MethodPut, s.path("v1", "listed-0"), text)
			}))
			b.Run("patch", s.requests(func(b *testing.B, i int) {
				s.send(b, http.MethodPatch, s.path("v1", "listed-1"), fmt.Sprintf(`{"spec":{"replicas":%d}}`, i%2+1))
			}))
			b.Run("watch", s.watches)
		})
	}
}

// listed is the number of objects in a list, watchers the number of watches that receive an
// event.
const listed, watchers = 200, 20

func widget(name, version string) string {
	return `{"apiVersion":"workshop.example.com/` + version + `","kind":"Widget","metadata":{"name":"` + name + `"},` +
		`"spec":{"model":"pendulum","replicas":2,"maxReplicas":5,` +
		`"parts":[{"name":"frame","material":"oak"},{"name":"screw","quantity":12}]}}`
}

// sender sends requests to a server's own port.
type sender struct {
	client *http.Client
	url    string
}

func newSender(b *testing.B, program string) *sender {
	b.Helper()
	return newSenderOf(b, envtest.Options{Server: program})
}

func newSenderOf(b *testing.B, options envtest.Options) *sender {
	b.Helper()
	e := envtest.New(b, options)
	client, err := rest.HTTPClientFor(e.Servers[0].ConfigAs(e, e.Admin(b)))
	if err != nil {
		b.Fatal(err)
	}
	return &sender{client, e.Servers[0].URL}
}

func (s *sender) path(version, name string) string {
	return "/apis/workshop.example.com/" + version + "/namespaces/default/widgets/" + name
}

func (s *sender) open(ctx context.Context, method, path, body string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.url+strings.TrimSuffix(path, "/"), strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		req.Header.Set("Content-Type", "application/merge-patch+json")
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode >= http.StatusBadRequest {
		defer resp.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10)) // only for the error
		return nil, fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, text)
	}
	return resp, nil
}

func (s *sender) send(b *testing.B, method, path, body string) {
	b.Helper()
	resp, err := s.open(b.Context(), method, path, body)
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		b.Fatal(err)
	}
}

// requests returns a benchmark that calls once for each iteration.
func (s *sender) requests(once func(b *testing.B, i int)) func(*testing.B) {
	return func(b *testing.B) {
		once(b, 0)
		before, i := s.costs(b), 1
		for b.Loop() {
			once(b, i)
			i++
		}
		s.report(b, before)
	}
}

// watches measures a change together with the watches that receive its event.
func (s *sender) watches(b *testing.B) {
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	var events atomic.Int64
	got := make(chan struct{}, 1)
	for range watchers {
		go func() {
			resp, err := s.open(ctx, http.MethodGet, s.path("v1", "")+
				"?watch=true&fieldSelector=metadata.name%3Dlisted-2&resourceVersion=0", "")
			if err != nil {
				b.Error(err)
				return
			}
			defer resp.Body.Close()
			for lines := bufio.NewReaderSize(resp.Body, 1<<20); ; {
				if _, err := lines.ReadSlice('\n'); err != nil {
					return
				}
				if events.Add(1)%watchers == 0 {
					got <- struct{}{}
				}
			}
		}()
	}
	<-got // the initial event of the object
	before, i := s.costs(b), 0
	for b.Loop() {
		s.send(b, http.MethodPatch, s.path("v1", "listed-2"), fmt.Sprintf(`{"spec":{"replicas":%d}}`, i%2+1))
		select {
		case <-got:
		case <-time.After(envtest.WaitTimeout):
			b.Fatalf("%d events, want %d for each change", events.Load(), watchers)
		}
		i++
	}
	s.report(b, before)
}

// costs returns the process counters of the server.
func (s *sender) costs(b *testing.B) map[string]float64 {
	b.Helper()
	resp, err := s.open(b.Context(), http.MethodGet, "/metrics", "")
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil {
		b.Fatal(err)
	}
	costs := map[string]float64{}
	for _, name := range []string{"process_cpu_seconds_total", "go_memstats_alloc_bytes_total", "go_memstats_mallocs_total",
		"process_resident_memory_bytes"} {
		if families[name] == nil {
			b.Fatalf("/metrics has no %s", name)
		}
		metric := families[name].GetMetric()[0]
		costs[name] = metric.GetCounter().GetValue() + metric.GetGauge().GetValue()
	}
	return costs
}

func (s *sender) report(b *testing.B, before map[string]float64) {
	b.Helper()
	after := s.costs(b)
	per := func(name string) float64 { return (after[name] - before[name]) / float64(b.N) }
	b.ReportMetric(per("process_cpu_seconds_total")*1e6, "cpu-µs/op")
	b.ReportMetric(per("go_memstats_alloc_bytes_total"), "server-B/op")
	b.ReportMetric(per("go_memstats_mallocs_total"), "server-allocs/op")
}
