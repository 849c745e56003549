// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"strings"
	"testing"

	"example.com/extension-apiserver/internal/certs/verify"
)

const (
	pairs       = "/etc/kubernetes/konnectivity/"
	agentCAFlag = "--cluster-ca-cert=" + pairs + "konnectivity-agent-server/ca.crt"
	hostFlag    = "--proxy-server-host=$(PROXY_SERVER_HOST)"
)

// agentNames are arguments of the server, as they are rendered.
const agentNames = "    - --agent-namespace=kube-system\n    - --agent-service-account=konnectivity-agent\n    - --authentication-audience=system:konnectivity-server\n"

// agentExamples are about who is an agent, rights and certificates.
var agentExamples = []example{
	{id: "K10", name: "none", set: static, replace: []string{agentNames, ""}, want: "whoever reaches the server is an agent", also: []string{"K13"}},
	{id: "K10", name: "both", set: static, replace: []string{agentNames, agentNames + "    - " + agentCAFlag + "\n"}, want: "the server refuses to start"},
	{id: "K10", name: "half", set: static, replace: []string{"    - --agent-namespace=kube-system\n", ""}, want: "--agent-namespace is missing", also: []string{"K12"}},
	{id: "K10", name: "no kubeconfig", set: static, replace: []string{"    - --kubeconfig=" + pairs + "kubeconfig/konnectivity-server.kubeconfig\n", ""}, want: "no --kubeconfig"},
	{id: "K10", name: "no certificate", set: static, replace: []string{"    - --cluster-key=" + pairs + "konnectivity-agent-server/tls.key\n", ""}, want: "no --cluster-cert and --cluster-key"},
	{id: "K10", name: "agents without a token", set: static, replace: []string{"        - --service-account-token-path=/var/run/secrets/konnectivity/token\n", ""}, want: "the server wants a token"},
	{id: "K10", name: "agents without a certificate", set: tcp, replace: []string{"        - --agent-key=" + pairs + "konnectivity-agent/tls.key\n", ""}, want: "the server wants a certificate"},
	{id: "K10", name: "agents without a CA", set: static, replace: []string{"        - --ca-cert=" + pairs + "konnectivity-agent/ca.crt\n", ""}, want: "no --ca-cert"},
	{id: "K11", name: "kube-apiserver's flag", set: tcp, replace: []string{agentCAFlag, "--cluster-ca-cert=/etc/kubernetes/pki/ca.crt"}, want: "is the --client-ca-file of kube-apiserver", also: []string{"K15"}},
	{id: "K11", name: "kubeadm's file", set: tcp, replace: []string{agentCAFlag, "--cluster-ca-cert=/etc/kubernetes/pki/ca.crt", "--client-ca-file=/etc/kubernetes/pki/ca.crt", "--client-ca-file=/x"},
		want: "kubeadm's file", also: []string{"K15"}},
	{id: "K11", name: "the ServiceAccount's", set: tcp, replace: []string{agentCAFlag, "--cluster-ca-cert=/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"}, want: "the ServiceAccount's file", also: []string{"K15"}},
	{id: "K11", name: "the ConfigMap", set: tcp, replace: []string{agentCAFlag, "--cluster-ca-cert=" + pairs + "konnectivity-server/ca.crt",
		"path: /etc/kubernetes/konnectivity/konnectivity-server\n      type: Directory\n", "path: /x\n      type: Directory\n", "  - hostPath:\n      path: /x\n      type: Directory\n", "  - configMap:\n      name: kube-root-ca.crt\n"},
		want: "ConfigMap kube-root-ca.crt", also: []string{"K15"}},
	{id: "K11", name: "users' CA in kube-apiserver's file", set: tcp, replace: []string{"--client-ca-file=/etc/kubernetes/pki/ca.crt", "--client-ca-file=/x/konnectivity-agent-ca/tls.crt"}, want: "which vouches for users of the cluster"},
	{id: "K11", name: "users' CA in the kubeconfig", set: shipped{mode: "grpc-uds", mtls: true, leases: true},
		replace: []string{agentCAFlag, "--cluster-ca-cert=/x/users-ca/tls.crt"}, want: "which vouches for users of the cluster", also: []string{"K15"}},
	{id: "K11", name: "one CA for both", set: tcp, replace: []string{agentCAFlag, "--cluster-ca-cert=" + pairs + "konnectivity-server/ca.crt"}, want: "an agent's certificate would pass for kube-apiserver's", also: []string{"K15"}},
	{id: "K12", name: "audience", set: static, replace: []string{"audience: system:konnectivity-server", "audience: other"}, want: `has the audience "other"`},
	{id: "K12", name: "token for kube-apiserver", set: static, replace: []string{"              audience: system:konnectivity-server\n", ""}, want: `has the audience ""`},
	{id: "K12", name: "path", set: static, replace: []string{"              path: token\n", "              path: other\n"}, want: "no projected volume"},
	{id: "K12", name: "namespace", set: static, replace: []string{"--agent-namespace=kube-system", "--agent-namespace=konnectivity"}, want: "the server has --agent-namespace=konnectivity"},
	{id: "K12", name: "ServiceAccount", set: static, replace: []string{"serviceAccountName: konnectivity-agent", "serviceAccountName: other"}, want: `agents have the ServiceAccount "other"`},
	{id: "K13", name: "no right", set: static, replace: []string{"  - tokenreviews\n", "  - selfsubjectreviews\n"}, want: "user system:konnectivity-server may not create tokenreviews.authentication.k8s.io in the cluster"},
	{id: "K13", name: "another user", set: static, replace: []string{"  name: system:konnectivity-server\n", "  name: system:other\n"}, want: "may not create tokenreviews"},
	{id: "K13", name: "more than is used", set: static, replace: []string{"  kind: ClusterRole\n  name: konnectivity-server\n", "  kind: ClusterRole\n  name: system:auth-delegator\n"},
		want: "may create subjectaccessreviews.authorization.k8s.io in the cluster, which it never does", severity: verify.Warning},
	{id: "K13", name: "paths", set: static, replace: []string{"rules:\n- apiGroups:\n  - authentication.k8s.io\n", "rules:\n- nonResourceURLs: [/metrics]\n  verbs: [get]\n- apiGroups:\n  - authentication.k8s.io\n"}, want: "get /metrics", severity: verify.Warning},
	{id: "K13", name: "leases of the server", set: leases, replace: []string{"  - update\n  - delete\n", "  - delete\n"}, want: "may not update leases.coordination.k8s.io in the namespace konnectivity-leases"},
	{id: "K13", name: "leases of the agents", set: leases, replace: []string{"- kind: ServiceAccount\n  name: konnectivity-agent\n", "- kind: ServiceAccount\n  name: other\n"},
		want: "ServiceAccount kube-system/konnectivity-agent may not watch leases.coordination.k8s.io"},
	{id: "K14", name: "agents' host", set: static, replace: []string{"proxy-server-host: konnectivity.example.com", "proxy-server-host: 10.0.0.9"}, want: "10.0.0.9 is dialled"},
	{id: "K14", name: "kube-apiserver's URL", set: tcp, replace: []string{"url: https://127.0.0.1:8131", "url: https://konnectivity:8131"}, want: "konnectivity is dialled"},
	{id: "K14", name: "tlsServerName", set: tcp, replace: []string{"        tlsConfig:\n", "        tlsConfig:\n          tlsServerName: other\n"}, want: "other is dialled"},
	{id: "K15", name: "no certificate", set: static, change: remove("konnectivity-agent-server", "tls.crt"), want: "expected the file " + pairs + "konnectivity-agent-server/tls.crt"},
	{id: "K15", name: "no certificate file", set: static, change: put("konnectivity-agent-server/tls.key", "konnectivity-agent-server/tls.crt"), want: "expected only PEM blocks CERTIFICATE", also: []string{"F04", "F02"}},
	{id: "K15", name: "CA of others for agents", set: static, change: put("konnectivity-server/ca.crt", "konnectivity-agent/ca.crt"), want: "the server's certificate towards agents is not accepted"},
	{id: "K15", name: "agents' CA of others", set: tcp, change: put("serving/ca.crt", "konnectivity-agent-server/ca.crt"), want: "the agents' client certificate is not accepted", also: []string{"C01", "C02", "C14"}},
	{id: "K15", name: "kube-apiserver's CA of others", set: tcp, change: put("serving/ca.crt", "konnectivity-apiserver-client/ca.crt"), want: "the server's certificate towards kube-apiserver is not accepted", also: []string{"C01", "C02", "C14"}},
	{id: "K15", name: "server's CA of others", set: tcp, change: put("serving/ca.crt", "konnectivity-server/ca.crt"), want: "kube-apiserver's client certificate is not accepted", also: []string{"C01", "C02", "C14"}},
	{id: "K15", name: "kubeconfig names a file elsewhere", set: static, change: func(t *testing.T, dir string) {
		t.Helper()
		name := "konnectivity-server.kubeconfig"
		write(t, pair(dir, "kubeconfig"), name, strings.Replace(readFile(t, pair(dir, "kubeconfig", name)), "certificate-authority: ca.crt", "certificate-authority: ../../pki/ca.crt", 1))
	}, want: "the kubeconfig names /etc/kubernetes/pki/ca.crt, which no volume of the server has"},
	{id: "K16", name: "another certificate", set: static, replace: []string{"  template:\n    metadata:\n      labels:\n        k8s-app: konnectivity-agent\n",
		"  template:\n    metadata:\n      annotations: {" + HashAnnotation + ": \"0000000000000000\"}\n      labels:\n        k8s-app: konnectivity-agent\n"},
		want: `is "0000000000000000"`, severity: verify.Warning},
	{id: "C04", name: "name of the API server", set: static, replace: []string{"    name: fixture-apiserver\n    namespace: fixture-system\n    port: 443\n", "    name: other\n    namespace: fixture-system\n    port: 443\n",
		"kind: Service\nmetadata:\n  labels:\n    app.kubernetes.io/component: server\n    app.kubernetes.io/name: extension-apiserver\n    app.kubernetes.io/part-of: fixture-apiserver\n  name: fixture-apiserver\n",
		"kind: Service\nmetadata:\n  labels:\n    app.kubernetes.io/component: server\n    app.kubernetes.io/name: extension-apiserver\n    app.kubernetes.io/part-of: fixture-apiserver\n  name: other\n"}, want: "other.fixture-system.svc"},
	{id: "C06", name: "key of another", set: static, change: put("konnectivity-agent/tls.key", "konnectivity-agent-server/tls.key"), want: "belongs to another certificate"},
}

// TestExpiry: what certgen verify says of the pairs is said here too.
func TestExpiry(t *testing.T) {
	t.Parallel()
	dir := newSet(t, static.files(t))
	report := check(t, dir)
	late, err := Verify(dir, Options{Now: report.GeneratedAt.AddDate(1, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	example{id: "C07", want: "expired at", also: []string{"K15"}}.compare(t, late)
	soon, err := Verify(dir, Options{Now: report.GeneratedAt.AddDate(1, 0, -20)})
	if err != nil {
		t.Fatal(err)
	}
	// The API server's own ended long ago.
	example{id: "C07", want: "ends at", severity: verify.Warning}.compare(t, soon)
}
