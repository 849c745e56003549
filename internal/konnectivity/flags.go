// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"slices"
	"time"
)

// version is that of konnectivity whose flags these are. Its minor version is that of Kubernetes.
const version = "v0.36.0"

const egressFlag = "egress-selector-config-file"

// apiServerFlags are those of kube-apiserver that matter here.
var apiServerFlags = []flag{{egressFlag, ""}, {"client-ca-file", ""}, {"service-cluster-ip-range", ""}}

// serverFlags are all that the server has. TestFlags compares them with the program.
var serverFlags = slices.Concat(loggingFlags, []flag{
	{"admin-bind-address", "127.0.0.1"}, {"admin-port", 8095},
	{"agent-bind-address", ""}, {"agent-port", 8091},
	{"agent-namespace", ""}, {"agent-service-account", ""}, {"authentication-audience", ""},
	{"backend-dial-timeout", time.Duration(0)},
	{"cipher-suites", []string{}}, {"tls-min-version", ""},
	{"cluster-ca-cert", ""}, {"cluster-cert", ""}, {"cluster-key", ""},
	{"delete-existing-uds-file", true}, {"uds-name", ""},
	{"enable-contention-profiling", false}, {"enable-profiling", false},
	{"enable-lease-controller", false}, {"lease-label", leaseLabel}, {"lease-namespace", "kube-system"},
	{"frontend-keepalive-time", time.Hour}, {"keepalive-time", time.Hour},
	{"graceful-shutdown-timeout", time.Duration(0)},
	{"health-bind-address", ""}, {"health-port", 8092},
	{"kube-api-content-type", protobuf}, {"kubeconfig", ""}, {"kubeconfig-burst", 0}, {"kubeconfig-qps", float32(0)},
	{"mode", "grpc"}, {"proxy-strategies", "default"},
	{"server-bind-address", ""}, {"server-ca-cert", ""}, {"server-cert", ""}, {"server-key", ""}, {"server-port", 8090},
	{"server-count", 1}, {"server-id", ""},
	{"xfr-channel-size", 10},
})

// agentFlags are all that the agent has.
var agentFlags = slices.Concat(loggingFlags, []flag{
	{"admin-bind-address", "127.0.0.1"}, {"admin-server-port", 8094},
	{"agent-cert", ""}, {"agent-key", ""}, {"ca-cert", ""},
	{"agent-id", ""}, {"agent-identifiers", ""}, {"alpn-proto", []string{}},
	{"count-server-leases", false}, {"lease-label", leaseLabel}, {"lease-namespace", "kube-system"}, {"server-count-source", "default"},
	{"enable-contention-profiling", false}, {"enable-profiling", false},
	{"health-server-host", ""}, {"health-server-port", 8093},
	{"keepalive-time", time.Hour}, {"probe-interval", time.Second}, {"sync-forever", false},
	{"sync-interval", time.Second}, {"sync-interval-cap", 10 * time.Second},
	{"kube-api-content-type", protobuf}, {"kubeconfig", ""},
	{"proxy-server-host", "127.0.0.1"}, {"proxy-server-port", 8091},
	{"service-account-token-path", ""},
	{"warn-on-channel-limit", false}, {"xfr-channel-size", 150},
})

const (
	leaseLabel = "k8s-app=konnectivity-server"
	protobuf   = "application/vnd.kubernetes.protobuf"
)

// loggingFlags are klog's. The programs set v to 4.
var loggingFlags = []flag{
	{"add-dir-header", false}, {"alsologtostderr", false}, {"alsologtostderrthreshold", ""}, {"legacy-stderr-threshold-behavior", true},
	{"log-backtrace-at", ":0"}, {"log-dir", ""}, {"log-file", ""}, {"log-file-max-size", 1800}, {"logtostderr", true}, {"one-output", false},
	{"skip-headers", false}, {"skip-log-headers", false}, {"stderrthreshold", "2"}, {"v", 4}, {"vmodule", ""},
}
