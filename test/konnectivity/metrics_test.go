// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"k8s.io/component-base/metrics/testutil"

	"example.com/extension-apiserver/pkg/envtest"
)

// The prefixes of konnectivity's metrics.
const (
	serverMetric = "konnectivity_network_proxy_server_"
	agentMetric  = "konnectivity_network_proxy_agent_"
	egressMetric = "apiserver_egress_dialer_"
)

// labels select samples.
type labels map[string]string

// sum adds up the samples of a metric that have the labels.
func sum(metrics testutil.Metrics, name string, with labels) float64 {
	total := 0.0
	for _, sample := range metrics[name] {
		wanted := true
		for label, value := range with {
			wanted = wanted && string(sample.Metric[testutil.LabelName(label)]) == value
		}
		if wanted {
			total += float64(sample.Value)
		}
	}
	return total
}

func parse(text []byte, err error) (testutil.Metrics, error) {
	if err != nil {
		return nil, err
	}
	metrics := testutil.NewMetrics()
	if err := testutil.ParseMetrics(string(text), &metrics); err != nil {
		return nil, err
	}
	if len(metrics) == 0 {
		return nil, errors.New("read metrics: there are none")
	}
	return metrics, nil
}

// metricsOf returns the metrics of a konnectivity server or agent.
func metricsOf(ctx context.Context, p *envtest.KonnectivityProcess) (testutil.Metrics, error) {
	return parse(p.Metrics(ctx))
}

// apiServerMetrics returns the metrics of the only kube-apiserver.
func apiServerMetrics(ctx context.Context, t testing.TB, e *envtest.Environment) (testutil.Metrics, error) {
	return parse(read(ctx, e.Admin(t), "/metrics"))
}

// counts are the agent's counters so far: data packets to the server, and endpoints that it failed
// to dial.
type counts struct{ packets, failures float64 }

func count(ctx context.Context, e *envtest.Environment) (counts, error) {
	agent, err := metricsOf(ctx, only(e).Agents[0])
	return counts{
		packets: sum(agent, agentMetric+"stream_packets_total",
			labels{"segment": "from_agent", "packet_type": "DATA"}),
		failures: sum(agent, agentMetric+"endpoint_dial_failure_total", nil),
	}, err
}

// listPackets is the minimum number of packets of a list of 5 MiB. kube-apiserver requests it
// compressed, which saves at most half, and an agent reads 4 KiB at a time.
const listPackets = listSize / 2 / (4 << 10)

// carried checks the metrics of kube-apiserver, konnectivity server and agent. It returns nil if
// the tunnel has carried the requests of use and still holds connections open.
func carried(ctx context.Context, t *testing.T, e *envtest.Environment, mode envtest.Mode, before counts) error {
	k := only(e)
	if k.ProxyServer == nil || len(k.Agents) == 0 {
		return errors.New("there is no konnectivity server or agent to carry anything")
	}
	apiServer, err1 := apiServerMetrics(ctx, t, e)
	server, err2 := metricsOf(ctx, k.ProxyServer)
	agent, err3 := metricsOf(ctx, k.Agents[0])
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	var errs []error
	within := func(metrics testutil.Metrics, name string, with labels, least, most float64) {
		if got := sum(metrics, name, with); got < least || got > most {
			errs = append(errs, fmt.Errorf("%s%v is %v, want %v to %v", name, with, got, least, most))
		}
	}
	const many = 1e9
	dial := dialLabels(mode)
	within(apiServer, egressMetric+"dial_start_total", dial, 1, many)
	within(apiServer, egressMetric+"dial_duration_seconds_count", dial, 1, many)
	if mode == envtest.GRPCOverUDS {
		within(apiServer, "konnectivity_network_proxy_client_client_connections", labels{"status": "ok"}, 1, many)
		within(apiServer, "konnectivity_network_proxy_client_stream_packets_total",
			labels{"segment": "from_client", "packet_type": "DATA"}, 1, many)
		within(server, serverMetric+"grpc_connections", labels{"service_method": "Proxy"}, 1, many)
	} else {
		within(server, serverMetric+"http_connections", nil, 1, many)
	}
	within(server, serverMetric+"ready_backends", labels{"proxy_strategy": "default"}, 1, 1)
	within(server, serverMetric+"established_connections", nil, 1, many)
	within(server, serverMetric+"dial_duration_seconds_count", nil, 1, many)
	within(server, serverMetric+"stream_packets_total", labels{"segment": "to_agent", "packet_type": "DATA"}, 1, many)
	within(server, serverMetric+"stream_packets_total", labels{"segment": "from_agent", "packet_type": "DATA"},
		listPackets, many)
	within(server, serverMetric+"pending_backend_dials", nil, 0, 0)
	within(agent, agentMetric+"open_server_connections", nil, 1, 1)
	within(agent, agentMetric+"open_endpoint_connections", nil, 1, many)
	within(agent, agentMetric+"dial_duration_seconds_count", nil, 1, many)
	// Before the first use kube-proxy may not have had the Service yet.
	within(agent, agentMetric+"endpoint_dial_failure_total", nil, before.failures, before.failures)
	within(agent, agentMetric+"stream_packets_total", labels{"segment": "from_agent", "packet_type": "DATA"},
		before.packets+listPackets, many)
	return errors.Join(errs...)
}

// dialLabels returns the labels of the mode in kube-apiserver's metrics.
func dialLabels(mode envtest.Mode) labels {
	switch mode {
	case envtest.GRPCOverUDS:
		return labels{"protocol": "grpc", "transport": "uds"}
	case envtest.HTTPConnectOverUDS:
		return labels{"protocol": "http_connect", "transport": "uds"}
	default:
		return labels{"protocol": "http_connect", "transport": "tcp"}
	}
}
