// SPDX-License-Identifier: Apache-2.0

package konnectivity

import "example.com/extension-apiserver/internal/certs/verify"

// agentFlag adds an argument to the agents.
func agentFlag(flag string) []string {
	return []string{"        - --probe-interval=5s\n", "        - --probe-interval=5s\n        - " + flag + "\n"}
}

// serverFlag adds an argument to the server of a static pod.
func serverFlag(flag string) []string {
	return []string{"    - --proxy-strategies=default\n", "    - --proxy-strategies=default\n    - " + flag + "\n"}
}

// agentEnv adds a variable of the agents whose value is a field of the pod.
func agentEnv(name, field string) []string {
	return []string{"        env:\n        - name: PROXY_SERVER_HOST\n", "        env:\n        - name: " + name + "\n          valueFrom: {fieldRef: {fieldPath: " + field + "}}\n        - name: PROXY_SERVER_HOST\n"}
}

// serverExamples are about flags.
var serverExamples = []example{
	{id: "K17", name: "unknown flag", set: static, replace: agentFlag("--proxy-strategies=default"), want: "unknown flag: --proxy-strategies"},
	{id: "K17", name: "no duration", set: static, replace: []string{"--keepalive-time=60s", "--keepalive-time=60"}, want: "missing unit in duration", also: []string{"K18"}},
	{id: "K17", name: "two words", set: static, replace: []string{"    - --v=2\n    - --agent-namespace", "    - --v\n    - two\n    - --agent-namespace"}, want: `--v two: invalid argument "two"`},
	{id: "K17", name: "no flag", set: static, replace: serverFlag("run"), want: "run: expected a flag"},
	{id: "K17", name: "deprecated", set: static, replace: serverFlag("--warn-on-channel-limit"), want: "deprecated", severity: verify.Warning},
	{id: "K17", name: "reserved port", set: static, replace: []string{"--admin-port=8133", "--admin-port=133"}, want: "--admin-port=133, expected 1024 to 49151"},
	{id: "K17", name: "ephemeral port", set: static, replace: []string{"--health-port=8134", "--health-port=58134"}, want: "--health-port=58134"},
	{id: "K18", name: "server's keepalive", set: static, replace: []string{"    - --keepalive-time=30s\n", ""}, want: "--keepalive-time=1h0m0s, expected at most 1m0s"},
	{id: "K18", name: "agents' keepalive", set: static, replace: []string{"--keepalive-time=60s", "--keepalive-time=29s"}, want: "--keepalive-time=29s, expected at least 30s"},
	{id: "K18", name: "agents' keepalive of an hour", set: static, replace: []string{"        - --keepalive-time=60s\n", ""}, want: "does not notice a server that is gone"},
	{id: "K18", name: "channel", set: static, replace: []string{"    - --xfr-channel-size=150\n", ""}, want: "--xfr-channel-size=10"},
	{id: "K18", name: "no dial timeout", set: static, replace: []string{"    - --backend-dial-timeout=10s\n", ""}, want: "--backend-dial-timeout=0s"},
	{id: "K18", name: "dial timeout of an agent", set: static, replace: []string{"--backend-dial-timeout=10s", "--backend-dial-timeout=5s"}, want: "--backend-dial-timeout=5s"},
	{id: "K18", name: "dial timeout of kube-apiserver", set: static, replace: []string{"--backend-dial-timeout=10s", "--backend-dial-timeout=30s"}, want: "--backend-dial-timeout=30s"},
	{id: "K19", name: "waits for ever", set: static, replace: []string{"    - --graceful-shutdown-timeout=15s\n", ""}, want: "--graceful-shutdown-timeout=0s"},
	{id: "K19", name: "is killed", set: static, replace: []string{"terminationGracePeriodSeconds: 40", "terminationGracePeriodSeconds: 15"}, want: "terminationGracePeriodSeconds, which is 15s"},
	{id: "K19", name: "is killed after the default", set: sidecar, replace: []string{"--graceful-shutdown-timeout=15s", "--graceful-shutdown-timeout=30s"}, want: "which is 30s"},
	{id: "K20", name: "replicas", set: sidecar, replace: []string{"  replicas: 1\n", "  replicas: 3\n"}, want: "--server-count=1, and there are 3 replicas"},
	{id: "K20", name: "static pods", set: static, add: "apiVersion: v1\nkind: Pod\nmetadata: {name: other}\nspec:\n  containers: [{name: konnectivity-server, image: 'x:v0.36.0'}]\n",
		want: "--server-count=1, and there are 2 static pods", also: []string{"K06", "K08", "K09", "K10", "K13", "K18", "K19", "K26"}},
	{id: "K20", name: "leases of the server alone", set: leases, replace: []string{"        - --count-server-leases\n", ""}, want: "agents have no --count-server-leases", also: []string{"K13"}},
	{id: "K20", name: "leases of the agents alone", set: leases, replace: []string{"        - --enable-lease-controller\n", "        - --server-count=2\n"}, want: "the server has no --enable-lease-controller", also: []string{"K13"}},
	{id: "K20", name: "leases of another namespace", set: leases, replace: []string{"        - --proxy-server-host", "        - --lease-label=a=b\n        - --proxy-server-host"}, want: "--lease-label=k8s-app=konnectivity-server, agents have a=b"},
	{id: "K21", name: "servers", set: leases, replace: []string{"        - --proxy-strategies=default\n", "        - --proxy-strategies=default\n        - --server-id=one\n"}, want: `all servers have the ID "one"`},
	{id: "K21", name: "servers by environment", set: leases, replace: []string{"        image: registry.k8s.io/kas-network-proxy/proxy-server:v0.36.0\n", "        image: registry.k8s.io/kas-network-proxy/proxy-server:v0.36.0\n        env: [{name: PROXY_SERVER_ID, value: one}]\n"},
		want: `all servers have the ID "one"`},
	{id: "K21", name: "agents", set: static, replace: agentFlag("--agent-id=one"), want: `all agents have the ID "one"`},
	{id: "K21", name: "agents of a node", set: static, replace: append(agentFlag("--agent-id=$(NODE)"), agentEnv("NODE", "spec.nodeName")...), want: "two agents on one node have the same ID"},
	{id: "K21", name: "agents of a node that overlap", set: shipped{mode: "grpc-uds", daemonSet: true}, replace: append(append(agentFlag("--agent-id=$(NODE)"), agentEnv("NODE", "spec.nodeName")...), "maxUnavailable: 10%", "maxSurge: 10%"),
		want: "two agents on one node have the same ID"},
	{id: "K22", name: "no identifiers", set: static, replace: []string{"--proxy-strategies=default", "--proxy-strategies=destHost,default"}, want: "the first of --proxy-strategies is destHost"},
	{id: "K22", name: "no default route", set: static, replace: append(agentFlag("--agent-identifiers=ipv4=10.0.0.1"), "--proxy-strategies=default", "--proxy-strategies=defaultRoute"), want: "defaultRoute"},
	{id: "K22", name: "unknown strategy", set: static, replace: []string{"--proxy-strategies=default", "--proxy-strategies=default,destCIDR"}, want: `"destCIDR"`},
	{id: "K22", name: "unknown identifier", set: static, replace: agentFlag("--agent-identifiers=ip=10.0.0.1"), want: `has "ip"`},
	{id: "K22", name: "cidr", set: static, replace: agentFlag("--agent-identifiers=cidr=10.0.0.0/8"), want: "no strategy reads", severity: verify.Warning},
	{id: "K23", name: "of a shell", set: static, replace: agentFlag("--agent-identifiers=ipv4=${HOST_IP}"), want: "there is no shell"},
	{id: "K23", name: "not set", set: static, replace: agentFlag("--agent-identifiers=ipv4=$(HOST_IP)"), want: "$(HOST_IP) has no value"},
	{id: "K23", name: "no ConfigMap", set: static, replace: []string{"  proxy-server-host: konnectivity.example.com\n", "  other: konnectivity.example.com\n"}, want: "(ConfigMap konnectivity-agent, key proxy-server-host) has no value"},
	{id: "K30", name: "no version", set: static, replace: []string{"proxy-agent:v0.36.0", "proxy-agent"}, want: "has no version"},
	{id: "K30", name: "older than Kubernetes", set: static, replace: []string{"kube-apiserver:v1.36.3", "kube-apiserver:v1.37.0"}, want: "beside registry.k8s.io/kube-apiserver:v1.37.0"},
	{id: "K30", name: "flags of another version", set: static, replace: []string{"v0.36.0", "v0.37.0", "v1.36.3", "v1.37.0"}, want: "flags were checked as those of v0.36.0", severity: verify.Warning},
}
