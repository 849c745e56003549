// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	rbacv1 "k8s.io/api/rbac/v1"

	"example.com/extension-apiserver/pkg/envtest"
	"example.com/extension-apiserver/sample/apis/workshop/install"
)

func init() { flaggedTopics = append(flaggedTopics, flaggedTopic{"tracing", prepareTracing}) }

// collector receives spans as an OpenTelemetry collector does.
type collector struct {
	collectorv1.UnimplementedTraceServiceServer
	mu sync.Mutex
	// traces holds the spans by trace ID.
	traces map[string][]*tracev1.Span
}

// Export implements the OTLP trace service.
func (c *collector) Export(_ context.Context,
	req *collectorv1.ExportTraceServiceRequest) (*collectorv1.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range req.ResourceSpans {
		for _, scope := range resource.ScopeSpans {
			for _, span := range scope.Spans {
				id := hex.EncodeToString(span.TraceId)
				c.traces[id] = append(c.traces[id], span)
			}
		}
	}
	return &collectorv1.ExportTraceServiceResponse{}, nil
}

func (c *collector) spans(trace string) []*tracev1.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.traces[trace]
}

func prepareTracing(t *testing.T) ([]string, func(*testing.T, *envtest.Environment)) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c, server := &collector{traces: map[string][]*tracev1.Span{}}, grpc.NewServer()
	collectorv1.RegisterTraceServiceServer(server, c)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Errorf("collector: %v", err)
		}
	})
	// Without a sampling rate, the server traces only requests whose client asks for it.
	config := filepath.Join(t.TempDir(), "tracing.yaml")
	if err := os.WriteFile(config,
		[]byte("apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nendpoint: "+l.Addr().String()+"\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	// Spans are sent after 100 ms instead of 5 s.
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
	return []string{"--tracing-config-file=" + config}, func(t *testing.T,
		e *envtest.Environment) {
		testTracing(t, e, c)
	}
}

// testTracing checks that a client's trace passes through kube-apiserver, which does not trace,
// to the extension API server and its etcd.
func testTracing(t *testing.T, e *envtest.Environment, c *collector) {
	k := kindCases[0]
	path := k.path(e.NewNamespace(t))
	const trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	header := http.Header{"Traceparent": {"00-" + trace + "-" + parent + "-01"}, "Content-Type": {"application/json"}}
	body, err := k.object(t, "traced").MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	// An unprivileged user cannot make the server trace: the trace would have arrived before the
	// administrator's.
	user := e.User(t, "untraced", rbacv1.PolicyRule{Verbs: []string{"list"},
		APIGroups: []string{install.GroupVersions()[0].Group}, Resources: []string{"*"}})
	envtest.NewEndpoint(t, user).Get(t, path, http.Header{"Traceparent": {"00-11111111111111111111111111111111-" +
		parent + "-01"}})
	if a := aggregator(t, e).Do(t, http.MethodPost, path, header, body); a.Status != http.StatusCreated {
		t.Fatalf("create: %d %s, want 201", a.Status, a.Body)
	}

	var request *tracev1.Span
	var names []string
	e.Eventually(t, "the spans of the request", envtest.WaitTimeout, func(context.Context) error {
		request, names = nil, nil
		for _, span := range c.spans(trace) {
			names = append(names, span.Name)
			if span.Kind == tracev1.Span_SPAN_KIND_SERVER {
				request = span
			}
		}
		if request == nil {
			return fmt.Errorf("no span of a server among %q", names)
		}
		return nil
	})
	if got := hex.EncodeToString(request.ParentSpanId); got != parent ||
		!strings.HasPrefix(request.Name, "POST /apis/"+k.resource.Group+"/"+k.resource.Version+"/") {
		t.Errorf("span of the request: %s under %s, want POST %s under the client's %s", request.Name,
			got, path, parent)
	}
	for _, want := range []string{"Create", "etcdserverpb.KV/Txn"} {
		e.Eventually(t, "the span "+want, envtest.WaitTimeout,
			func(context.Context) error { return below(c.spans(trace), request, want) })
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if diff := cmp.Diff([]string{trace}, slices.Collect(maps.Keys(c.traces))); diff != "" {
		t.Errorf("traces (-the administrator's +got):\n%s", diff)
	}
}

// below returns nil if a span with the name is a descendant of ancestor.
func below(spans []*tracev1.Span, ancestor *tracev1.Span, name string) error {
	parents := map[string]string{}
	for _, span := range spans {
		parents[string(span.SpanId)] = string(span.ParentSpanId)
	}
	var names []string
	for _, span := range spans {
		names = append(names, span.Name)
		for id := string(span.SpanId); span.Name == name && id != ""; id = parents[id] {
			if id == string(ancestor.SpanId) {
				return nil
			}
		}
	}
	return fmt.Errorf("none under %s among %q", ancestor.Name, names)
}
