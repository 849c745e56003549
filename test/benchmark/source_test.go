// SPDX-License-Identifier: Apache-2.0

package benchmark

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"example.com/extension-apiserver/pkg/envtest"
	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
)

// BenchmarkSource compares a kind whose objects are in a polled source with the same kind in etcd:
// 10,000 objects, of which 100 change each second. The interval of the polls is a second.
func BenchmarkSource(b *testing.B) {
	const objects, lists, watches, lasts = 10_000, 30, 20, 20 * time.Second
	for _, source := range []bool{false, true} {
		name, options := "etcd", envtest.Options{Server: "example.com/extension-apiserver/test/benchmark/gadgetserver"}
		if source {
			name, options.ServerEnv = "source", []string{fmt.Sprintf("OBJECTS=%d", objects)}
		}
		b.Run("objects="+name, func(b *testing.B) {
			s := newSenderOf(b, options)
			if !source {
				s.createGadgets(b, objects)
			}
			s.send(b, http.MethodGet, gadgets, "") // until the first list is complete
			for b.Loop() {
				// The cost of polls counts for the watches, and not for the lists.
				idle := s.cpuDuring(b, func() { <-time.After(lasts / 2) }) / (lasts / 2).Seconds()
				began := time.Now()
				listed := s.cpuDuring(b, func() {
					for range lists {
						s.send(b, http.MethodGet, gadgets+"?resourceVersion=0", "")
					}
				}) - idle*time.Since(began).Seconds()
				b.ReportMetric(listed/lists*1e3, "list-cpu-ms")
				b.ReportMetric(idle*1e3, "idle-cpu-ms/s")
				b.ReportMetric(s.costs(b)["process_resident_memory_bytes"]/(1<<20), "MiB")
				s.watchGadgets(b, watches, lasts, !source, objects)
			}
		})
	}
}

func (s *sender) createGadgets(b *testing.B, objects int) {
	b.Helper()
	var all errgroup.Group
	all.SetLimit(8)
	for i := range objects {
		all.Go(func() error {
			resp, err := s.open(b.Context(), http.MethodPost, gadgets, fmt.Sprintf(`{"apiVersion":%q,"kind":"Gadget",`+
				`"metadata":{"name":"gadget-%d"},"spec":{"purpose":"1"}}`, v1.SchemeGroupVersion.String(), i))
			if err != nil {
				return err
			}
			return resp.Body.Close()
		})
	}
	if err := all.Wait(); err != nil {
		b.Fatal(err)
	}
}

func (s *sender) cpuDuring(b *testing.B, work func()) (seconds float64) {
	b.Helper()
	before := s.costs(b)["process_cpu_seconds_total"]
	work()
	return s.costs(b)["process_cpu_seconds_total"] - before
}

// watchGadgets measures the CPU time of an event, including the polls or writes that cause it, and
// the time between a change and its event. With write, it changes the objects.
func (s *sender) watchGadgets(b *testing.B, watches int, lasts time.Duration, write bool, objects int) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), lasts)
	defer cancel()
	version := s.version(b)
	var mutex sync.Mutex
	var delays []time.Duration
	var all sync.WaitGroup
	used := s.cpuDuring(b, func() {
		for range watches {
			all.Go(func() {
				got := s.watchDelays(ctx, b, version)
				mutex.Lock()
				defer mutex.Unlock()
				delays = append(delays, got...)
			})
		}
		ticker := time.NewTicker(10 * time.Millisecond)
		defer ticker.Stop()
		for i := 0; ctx.Err() == nil; i++ {
			<-ticker.C
			if write {
				s.send(b, http.MethodPatch, fmt.Sprintf("%s/gadget-%d", gadgets, i%objects),
					fmt.Sprintf(`{"spec":{"purpose":"%d"}}`, time.Now().UnixNano()))
			}
		}
		all.Wait()
	})
	if len(delays) == 0 {
		b.Fatal("no events")
	}
	slices.Sort(delays)
	b.ReportMetric(used/float64(len(delays))*1e6, "event-cpu-µs")
	b.ReportMetric(float64(len(delays))/float64(watches)/lasts.Seconds(), "events/s")
	b.ReportMetric(quantile(delays, 50).Seconds()*1e3, "p50-ms")
	b.ReportMetric(quantile(delays, 99).Seconds()*1e3, "p99-ms")
	b.ReportMetric(delays[len(delays)-1].Seconds()*1e3, "max-ms")
}

// version returns the resourceVersion of a list.
func (s *sender) version(b *testing.B) string {
	b.Helper()
	resp, err := s.open(b.Context(), http.MethodGet, gadgets+"?limit=1", "")
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	var list v1.GadgetList
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
		b.Fatal(err)
	}
	return list.ResourceVersion
}

// watchDelays returns the time between each change and its event until the context ends.
func (s *sender) watchDelays(ctx context.Context, b *testing.B, version string) (delays []time.Duration) {
	resp, err := s.open(ctx, http.MethodGet, gadgets+"?watch=true&resourceVersion="+version, "")
	if err != nil {
		b.Error(err)
		return nil
	}
	defer resp.Body.Close()
	for lines := bufio.NewReaderSize(resp.Body, 1<<20); ; {
		line, err := lines.ReadSlice('\n')
		if err != nil {
			return delays
		}
		var event struct{ Object v1.Gadget }
		if err := json.Unmarshal(line, &event); err != nil {
			b.Error(err)
			return delays
		}
		changed, err := strconv.ParseInt(event.Object.Spec.Purpose, 10, 64)
		if err != nil {
			b.Errorf("event %.200s: %v", line, err)
			return delays
		}
		delays = append(delays, time.Since(time.Unix(0, changed)))
	}
}
