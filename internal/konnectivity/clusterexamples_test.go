// SPDX-License-Identifier: Apache-2.0

package konnectivity

import "example.com/extension-apiserver/internal/certs/verify"

const webhook1 = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: policy}
webhooks:
- name: policy.example.com
  admissionReviewVersions: [v1]
  sideEffects: None
  clientConfig: {service: {name: policy, namespace: policy}}
  rules: [{apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE]}]
`

const serverSelector = "  selector:\n    app.kubernetes.io/component: server\n    app.kubernetes.io/name: extension-apiserver\n"

// clusterExamples are about the API server's side, and about what lies between.
var clusterExamples = []example{
	{id: "K24", name: "no Service", set: static, replace: []string{"    name: fixture-apiserver\n    namespace: fixture-system\n    port: 443\n", "    name: other\n    namespace: fixture-system\n    port: 443\n"},
		want: "the Service fixture-system/other is not among the manifests", also: []string{"C04"}},
	{id: "K24", name: "headless", set: static, replace: []string{serverSelector, "  clusterIP: None\n" + serverSelector}, want: "headless"},
	{id: "K24", name: "ExternalName", set: static, replace: []string{serverSelector, "  type: ExternalName\n  externalName: x.example.com\n" + serverSelector}, want: "ExternalName"},
	{id: "K24", name: "port", set: static, replace: []string{"    port: 443\n  version: v1\n", "    port: 444\n  version: v1\n"}, want: "has no port 444"},
	{id: "K24", name: "named port", set: static, replace: []string{"    targetPort: https\n", "    targetPort: api\n"}, want: "has a port with the name api", also: []string{"K25"}},
	{id: "K24", name: "endpoints", set: static, add: `apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: one, namespace: fixture-system, labels: {kubernetes.io/service-name: fixture-apiserver}}
addressType: IPv4
endpoints: [{addresses: [10.244.7.7]}]
ports: [{name: api, port: 6443}]
`, want: `the EndpointSlice one has no port with the name "https"`},
	{id: "K25", name: "agents are elsewhere", set: static, replace: []string{"          k8s-app: konnectivity-agent\n    - podSelector", "          k8s-app: other\n    - podSelector"}, want: "let no connection of the agents"},
	{id: "K25", name: "agents of another namespace", set: static, replace: []string{"          kubernetes.io/metadata.name: kube-system\n      podSelector:\n        matchLabels:\n          k8s-app: konnectivity-agent\n",
		"          kubernetes.io/metadata.name: default\n      podSelector:\n        matchLabels:\n          k8s-app: konnectivity-agent\n"}, want: "let no connection of the agents"},
	{id: "K25", name: "port", set: static, replace: []string{"    - port: https\n      protocol: TCP\n", "    - port: 443\n      protocol: TCP\n"}, want: "to port 6443"},
	{id: "K26", name: "not before ready", set: sidecar, replace: []string{"  publishNotReadyAddresses: true\n", ""}, want: "publishNotReadyAddresses is not true"},
	{id: "K26", name: "port of the Service", set: sidecar, replace: []string{"    port: 8132\n    targetPort: agents\n", "    port: 443\n    targetPort: agents\n"}, want: "the Service konnectivity-server has another port"},
	{id: "K26", name: "port of the server", set: static, replace: []string{"--proxy-server-port=8132", "--proxy-server-port=443"}, want: "servers have --agent-port=8132", severity: verify.Warning},
	{id: "K27", name: "readiness", set: sidecar, replace: []string{"readinessProbe:\n          httpGet:\n            path: /healthz", "readinessProbe:\n          httpGet:\n            path: /readyz"}, want: "the readiness probe asks /readyz in the pod of kube-apiserver"},
	{id: "K27", name: "liveness", set: static, replace: []string{"path: /healthz\n        port: 8134", "path: /readyz\n        port: 8134"}, want: "restarted for ever"},
	{id: "K28", name: "pods", set: static, add: webhook1, want: "policy.example.com decides about the agents' pods"},
	{id: "K29", name: "no exception", set: static, replace: []string{"    image: registry.k8s.io/kube-apiserver:v1.36.3\n", "    image: registry.k8s.io/kube-apiserver:v1.36.3\n    env: [{name: https_proxy, value: 'http://proxy:3128'}]\n"},
		want: "there is no NO_PROXY"},
	{id: "K29", name: "Services", set: static, replace: []string{"    image: registry.k8s.io/kube-apiserver:v1.36.3\n",
		"    image: registry.k8s.io/kube-apiserver:v1.36.3\n    env: [{name: HTTPS_PROXY, value: 'http://proxy:3128'}, {name: NO_PROXY, value: '10.244.0.0/16'}]\n"}, want: "does not have 10.96.0.0/16"},
}
