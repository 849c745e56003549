// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/component-base/metrics/testutil"

	"example.com/extension-apiserver/pkg/envtest"
)

// metric returns the sum of the samples in the extension API server's /metrics that have the
// labels.
func metric(t *testing.T, server envtest.Endpoint, name string, labels map[string]string) float64 {
	t.Helper()
	return sumOf(t, server.Get(t, "/metrics", nil).Body, name, labels)
}

// sumOf returns the sum of the samples of a metric that have the labels.
func sumOf(t *testing.T, metrics []byte, name string, labels map[string]string) float64 {
	t.Helper()
	samples := testutil.NewMetrics()
	if err := testutil.ParseMetrics(string(metrics), &samples); err != nil {
		t.Fatal(err)
	}
	if len(samples) == 0 {
		t.Fatal("the metrics have no samples")
	}
	sum := 0.0
	for _, sample := range samples[name] {
		wanted := true
		for label, value := range labels {
			wanted = wanted && string(sample.Metric[testutil.LabelName(label)]) == value
		}
		if wanted {
			sum += float64(sample.Value)
		}
	}
	return sum
}

// TestMetricsAccess checks that metrics, which reveal activity in the cluster, require the
// permission for the path.
func TestMetricsAccess(t *testing.T) {
	scraper := shared.User(t, "scraper", rbacv1.PolicyRule{Verbs: []string{"get"},
		NonResourceURLs: []string{"/metrics"}})
	body := string(envtest.NewEndpoint(t, shared.Servers[0].ConfigAs(shared, scraper)).Get(t, "/metrics", nil).Body)
	for _, name := range []string{
		"apiserver_request_total", "apiserver_request_duration_seconds", "apiserver_flowcontrol_current_limit_seats",
		"apiserver_storage_size_bytes",
		"apiserver_admission_controller_admission_duration_seconds", "authentication_attempts",
		"etcd_request_duration_seconds",
		"workqueue_depth", "process_resident_memory_bytes", "go_goroutines",
	} {
		if !strings.Contains(body, "\n# TYPE "+name+" ") {
			t.Errorf("/metrics has no %s", name)
		}
	}
	other, err := shared.Config("no-scraper")
	if err != nil {
		t.Fatal(err)
	}
	if a := envtest.NewEndpoint(t, shared.Servers[0].ConfigAs(shared, other)).Do(t, http.MethodGet, "/metrics", nil,
		nil); a.Status != http.StatusForbidden {
		t.Errorf("/metrics without the permission: %d, want 403", a.Status)
	}
}

// TestMetricsCount checks that requests are counted by verb, resource and code, and watches while
// they are open.
func TestMetricsCount(t *testing.T) {
	for _, k := range kindCases {
		t.Run(k.resource.Resource, func(t *testing.T) {
			server, client := direct(t, shared), k.client(t, shared.Admin(t), shared.NewNamespace(t))
			resource := map[string]string{"group": k.resource.Group, "version": k.resource.Version,
				"resource": k.resource.Resource}
			with := func(labels ...string) map[string]string {
				all := maps.Clone(resource)
				for pair := range slices.Chunk(labels, 2) {
					all[pair[0]] = pair[1]
				}
				return all
			}
			counted := map[string]map[string]string{
				"missing": with("verb", "GET", "code", "404", "subresource", "", "component", "apiserver"),
				"created": with("verb", "POST", "code", "201", "dry_run", ""),
				"dry run": with("verb", "POST", "code", "201", "dry_run", "All"),
				"deleted": with("verb", "DELETE", "code", "200"),
			}
			before := map[string]float64{}
			for name, labels := range counted {
				before[name] = metric(t, server, "apiserver_request_total", labels)
			}
			events, err := client.Watch(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer events.Stop()
			if open := metric(t, server, "apiserver_longrunning_requests", with("verb", "WATCH")); open < 1 {
				t.Errorf("open watches: %v, want at least ours", open)
			}
			sent := metric(t, server, "apiserver_watch_events_total", resource)
			for range 3 {
				if _, err := client.Get(t.Context(), "missing", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
					t.Fatalf("get: %v, want NotFound", err)
				}
			}
			name := uniqueName(t)
			for _, options := range []metav1.CreateOptions{{DryRun: []string{metav1.DryRunAll}}, {}} {
				if _, err := client.Create(t.Context(), k.object(t, name), options); err != nil {
					t.Fatal(err)
				}
			}
			if err := client.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			for event := range events.ResultChan() {
				if event.Type == watch.Deleted {
					break
				}
			}
			for counter, want := range map[string]float64{"missing": 3, "created": 1, "dry run": 1, "deleted": 1} {
				got := metric(t, server, "apiserver_request_total", counted[counter]) - before[counter]
				// Meanwhile the namespaces of other tests are deleted, with their widgets.
				if others := counter == "deleted" && got > want; got != want && !others {
					t.Errorf("apiserver_request_total%v: %v more, want %v", counted[counter], got, want)
				}
			}
			if got := metric(t, server, "apiserver_watch_events_total", resource) - sent; got < 2 {
				t.Errorf("apiserver_watch_events_total%v: %v more, want at least the 2 of our watch", resource, got)
			}
		})
	}
}

func init() {
	flaggedTopics = append(flaggedTopics, flaggedTopic{"storage metrics",
		func(*testing.T) ([]string, func(*testing.T, *envtest.Environment)) {
			return []string{"--etcd-count-metric-poll-period=1s"}, testStorageMetrics
		}})
}

// testStorageMetrics checks that stored objects are counted, and that priority and fairness knows
// the size of a list. Otherwise many concurrent lists could exhaust the memory.
func testStorageMetrics(t *testing.T, e *envtest.Environment) {
	for _, k := range kindCases {
		client := k.client(t, e.Admin(t), e.NewNamespace(t))
		for i := range 3 {
			obj := k.object(t, fmt.Sprintf("large-%d", i))
			obj.SetAnnotations(map[string]string{"filler": strings.Repeat("x", 150_000)})
			if _, err := client.Create(t.Context(), obj, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		server := direct(t, e)
		resource := map[string]string{"group": k.resource.Group, "resource": k.resource.Resource}
		e.Eventually(t, "the count of "+k.resource.Resource, envtest.WaitTimeout, func(context.Context) error {
			objects, bytes := metric(t, server, "apiserver_resource_objects", resource),
				metric(t, server, "apiserver_resource_size_estimate_bytes", resource)
			if objects < 3 || bytes < 450_000 {
				return fmt.Errorf("%v objects of %v bytes, want at least 3 and 450000", objects, bytes)
			}
			return nil
		})
		// One seat is 100 kB.
		seats := func() float64 {
			return metric(t, server, "apiserver_flowcontrol_work_estimated_seats_sum",
				map[string]string{"flow_schema": "exempt"})
		}
		before := seats()
		if _, err := client.List(t.Context(), metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
		if got := seats() - before; got < 5 {
			t.Errorf("seats of a list of 450 kB of %s: %v, want at least 5", k.resource.Resource, got)
		}
	}
}
