// SPDX-License-Identifier: Apache-2.0

// Package live checks a running konnectivity by its metrics: whether each kube-apiserver's
// server has agents, and each agent all servers. It compares the servers' and agents' counts
// with the number of kube-apiservers: with a wrong count, servers and agents agree although a
// kube-apiserver has no agent. It changes nothing.
package live

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"example.com/extension-apiserver/internal/catalogue"
)

// Target is a konnectivity server or agent.
type Target struct {
	Name    string
	Metrics func(context.Context) ([]byte, error) // in Prometheus' text format
}

// State is the input of Check.
type State struct {
	// KubeAPIServers is the number of kube-apiservers that use konnectivity; each has one
	// server.
	KubeAPIServers int
	Agents         []Target
	// Servers may be empty: a static pod serves its metrics only on its node.
	Servers []Target
}

var (
	unreachable  = catalogue.RuleOf("T11")
	disconnected = catalogue.RuleOf("T12")
	miscounted   = catalogue.RuleOf("T13")
)

// noAgentResponse matches the error of a kube-apiserver whose server has no agent, with gRPC and
// with HTTP CONNECT.
var noAgentResponse = regexp.MustCompile(`No agent available|proxy error from .* code 500`)

// Rules returns the rules of Check.
func Rules() []catalogue.Rule { return []catalogue.Rule{unreachable, disconnected, miscounted} }

// Check returns the findings, the worst first.
func Check(ctx context.Context, s State) []catalogue.Finding {
	var out []catalogue.Finding
	add := func(r catalogue.Rule, severity catalogue.Severity, object, format string, args ...any) {
		out = append(out, catalogue.Finding{ID: r.ID, Severity: severity, Object: object,
			Evidence: fmt.Sprintf(format, args...), Fix: r.Fix})
	}
	if len(s.Agents) == 0 {
		add(unreachable, catalogue.Error, "konnectivity", "expected agents, found none")
	}
	want := float64(s.KubeAPIServers)
	for _, a := range s.Agents {
		m, err := read(ctx, a)
		if err != nil {
			r := unreachable
			if noAgentResponse.MatchString(err.Error()) {
				r = disconnected
			}
			add(r, catalogue.Error, a.Name, "%v", err)
			continue
		}
		open, known := m.sum("konnectivity_network_proxy_agent_open_server_connections"),
			m.sum("konnectivity_network_proxy_agent_known_server_count")
		if open < want {
			add(disconnected, catalogue.Error, a.Name, "connected to %v servers, but there are %v kube-apiservers", open,
				want)
		}
		if known != want {
			severity := map[bool]catalogue.Severity{true: catalogue.Error, false: catalogue.Warning}[known < want]
			add(miscounted, severity, a.Name, "expects %v servers, but there are %v kube-apiservers", known, want)
		}
	}
	for _, server := range s.Servers {
		m, err := read(ctx, server)
		if err != nil {
			add(unreachable, catalogue.Error, server.Name, "%v", err)
		} else if m.sum("konnectivity_network_proxy_server_ready_backends") == 0 {
			add(disconnected, catalogue.Error, server.Name, "has no agent")
		}
	}
	return catalogue.Sort(out)
}

// Agents returns the running agent pods. Their metrics are read through kube-apiserver, and
// therefore through the tunnel.
func Agents(ctx context.Context, client kubernetes.Interface) ([]Target, error) {
	pods, err := client.CoreV1().Pods(metav1.NamespaceSystem).List(ctx,
		metav1.ListOptions{LabelSelector: "k8s-app=konnectivity-agent"})
	if err != nil {
		return nil, fmt.Errorf("list the pods of konnectivity agents: %w", err)
	}
	running := slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool {
		return p.Status.Phase != corev1.PodRunning ||
			p.DeletionTimestamp != nil
	})
	var out []Target
	for _, p := range running {
		out = append(out, Target{"Pod/" + p.Name, func(ctx context.Context) ([]byte, error) {
			// Use the port number: a proxied pod has no port names.
			text, err := client.CoreV1().Pods(p.Namespace).ProxyGet("http", p.Name, "8093", "metrics", nil).DoRaw(ctx)
			if err != nil {
				return nil, fmt.Errorf("%w: %s", err, text) // only text contains kube-apiserver's reason
			}
			return text, nil
		}})
	}
	return out, nil
}

// URL returns a server or agent whose metrics are at a URL, such as
// http://127.0.0.1:8134/metrics on the node of a static pod.
func URL(client *http.Client, url string) Target {
	return Target{url, func(ctx context.Context) ([]byte, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return nil, err
		}
		resp, err := client.Do(req)
		if err != nil {
			return nil, err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return nil, fmt.Errorf("GET %s: %s", url, resp.Status)
		}
		return io.ReadAll(resp.Body)
	}}
}

type metrics map[string]*dto.MetricFamily

func read(ctx context.Context, t Target) (metrics, error) {
	text, err := t.Metrics(ctx)
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(bytes.NewReader(text))
}

// sum returns the sum of a gauge's samples, 0 if the gauge is missing.
func (m metrics) sum(name string) float64 {
	total := 0.0
	for _, sample := range m[name].GetMetric() {
		total += sample.GetGauge().GetValue()
	}
	return total
}
