// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"strings"
	"testing"

	"example.com/extension-apiserver/internal/catalogue"
)

const (
	pairs       = "/etc/kubernetes/konnectivity/"
	socketPath  = "/etc/kubernetes/konnectivity-server/konnectivity-server.socket"
	agentCAFlag = "--cluster-ca-cert=" + pairs + "konnectivity-agent-server/ca.crt"
	agentNames  = "    - --agent-namespace=kube-system\n    - --agent-service-account=konnectivity-agent\n    - " +
		"--authentication-audience=system:konnectivity-server\n"
	udsBlock = "      uds:\n        udsName: " + socketPath + "\n"
	tcpBlock = "      tcp:\n        url: https://127.0.0.1:8131\n        tlsConfig:\n          caBundle: " + pairs +
		"konnectivity-apiserver-client/ca.crt\n" +
		"          clientCert: " + pairs + "konnectivity-apiserver-client/tls.crt\n          clientKey: " + pairs +
		"konnectivity-apiserver-client/tls.key\n"
	leaseFlags = "        - --enable-lease-controller\n        - --lease-namespace=konnectivity-leases\n"
)

// examples contains mistakes that users can make with the shipped manifests.
var examples = []example{
	{id: "T01", name: "no server", set: static, replace: []string{"name: konnectivity-server\n    ports",
		"name: x\n    ports", "proxy-server:", "other:"}, want: "expected a container konnectivity-server"},
	{id: "T01", name: "no agents", set: static, replace: []string{"name: konnectivity-agent\n        ports",
		"name: x\n        ports", "proxy-agent:", "other:"}, want: "expected a container konnectivity-agent"},
	{id: "T01", name: "misspelt field", set: static, replace: []string{"  hostNetwork: true\n",
		"  hostNetwrok: true\n"}, want: "hostNetwrok"},
	{id: "T01", name: "no kube-apiserver", set: static, replace: []string{"name: kube-apiserver\n    volumeMounts",
		"name: x\n    volumeMounts", "/kube-apiserver:", "/other:"},
		want: "expected a container kube-apiserver", severity: catalogue.Info},
	{id: "T01", name: "kube-apiserver without the flag", set: static,
		replace: []string{"    - --egress-selector-config-file=/etc/kubernetes/konnectivity/egress/grpc-uds.yaml\n",
			""},
		want: "expected --egress-selector-config-file on kube-apiserver"},
	{id: "T01", name: "another file", set: static, replace: []string{"egress/grpc-uds.yaml", "egress/other.yaml"},
		want: "expected the file other.yaml"},

	{id: "T02", name: "v1", set: static, replace: []string{"apiserver.k8s.io/v1beta1", "apiserver.k8s.io/v1"},
		want: "there is no v1"},
	{id: "T02", name: "unknown field", set: static, replace: []string{"        udsName:", "        udsname:"},
		want: `unknown field "egressSelections[0].connection.transport.uds.udsname"`},
	{id: "T02", name: "other name", set: static, replace: []string{"- name: controlplane", "- name: nodes"},
		want: `Unsupported value: "nodes"`},
	{id: "T02", name: "GRPC over TCP", set: static, replace: []string{udsBlock, tcpBlock},
		want: "UDS must be set with GRPC", also: []string{"T07"}},
	{id: "T02", name: "no client certificate", set: tcp, change: remove("konnectivity-apiserver-client", "tls.crt"),
		want: "TLS client cert does not exist", also: []string{"T05"}},
	{id: "T02", name: "no cluster", set: static, replace: []string{"- name: cluster\n", "- name: controlplane\n",
		"- name: controlplane\n  connection: {proxyProtocol: Direct}\n",
		""}, want: "no egress selection is named cluster"},
	{id: "T02", name: "direct", set: static, replace: []string{"    proxyProtocol: GRPC\n    transport:\n" + udsBlock,
		"    proxyProtocol: Direct\n"}, want: "Direct"},

	{id: "T03", name: "http", set: tcp, replace: []string{strings.TrimPrefix(tcpBlock, "      tcp:\n"),
		"        url: http://127.0.0.1:8131\n"}, want: "http://127.0.0.1:8131"},

	{id: "T04", name: "none", set: static, replace: []string{agentNames, ""},
		want: "the server accepts every client that can reach it as an agent"},
	{id: "T04", name: "both", set: static, replace: []string{agentNames, agentNames + "    - " + agentCAFlag + "\n"},
		want: "the server refuses to start", also: []string{"T05"}},
	{id: "T04", name: "half", set: static, replace: []string{"    - --agent-namespace=kube-system\n", ""},
		want: "--agent-namespace is missing"},
	{id: "T04", name: "no kubeconfig", set: static, replace: []string{"    - --kubeconfig=" + pairs +
		"kubeconfig/konnectivity-server.kubeconfig\n", ""}, want: "no --kubeconfig", also: []string{"T08"}},
	{id: "T04", name: "agents without a token", set: static,
		replace: []string{"        - --service-account-token-path=/var/run/secrets/konnectivity/token\n", ""},
		want:    "the server expects a token"},
	{id: "T04", name: "agents without a certificate", set: tcp,
		replace: []string{"        - --agent-key=" + pairs + "konnectivity-agent/tls.key\n", ""},
		want:    "the server expects a certificate"},

	{id: "T05", name: "kube-apiserver's flag", set: tcp,
		replace: []string{agentCAFlag, "--cluster-ca-cert=/etc/kubernetes/pki/ca.crt"},
		want:    "is the --client-ca-file of kube-apiserver"},
	{id: "T05", name: "kubeadm's file", set: tcp, replace: []string{agentCAFlag,
		"--cluster-ca-cert=/etc/kubernetes/pki/ca.crt", "--client-ca-file=/etc/kubernetes/pki/ca.crt",
		"--client-ca-file=/x"}, want: "kubeadm's cluster CA"},
	{id: "T05", name: "the ServiceAccount's", set: tcp, replace: []string{agentCAFlag,
		"--cluster-ca-cert=/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"}, want: "the cluster CA that is " +
		"mounted into pods"},
	{id: "T05", name: "users' CA in kube-apiserver's file", set: tcp,
		replace: []string{"--client-ca-file=/etc/kubernetes/pki/ca.crt",
			"--client-ca-file=/x/konnectivity-agent-ca/tls.crt"}, want: "a CA of the cluster's users"},
	{id: "T05", name: "users' CA in the kubeconfig", set: shipped{mode: "grpc-uds", mtls: true},
		replace: []string{agentCAFlag, "--cluster-ca-cert=/x/users-ca/tls.crt"}, want: "a CA of the cluster's users"},
	{id: "T05", name: "users' CA embedded in the kubeconfig", set: shipped{mode: "grpc-uds", mtls: true},
		change: embedCA, replace: []string{agentCAFlag, "--cluster-ca-cert=/x/users-ca/tls.crt"},
		want: "a CA of the cluster's users"},
	{id: "T05", name: "one CA for both", set: tcp, replace: []string{agentCAFlag, "--cluster-ca-cert=" + pairs +
		"konnectivity-server/ca.crt"}, want: "the server accepts an agent's certificate as kube-apiserver's"},
	{id: "T05", name: "public CAs", set: tcp,
		replace: []string{"          caBundle: /etc/kubernetes/konnectivity/konnectivity-apiserver-client/ca.crt\n",
			""}, want: "tlsConfig has no caBundle"},
	{id: "T05", name: "no certificate", set: static, change: remove("konnectivity-agent-server", "tls.crt"),
		want: "expected the file " + pairs + "konnectivity-agent-server/tls.crt"},
	{id: "T05", name: "CA of others for agents", set: static,
		change: put("konnectivity-server/ca.crt", "konnectivity-agent/ca.crt"),
		want:   "the server's certificate for agents does not verify"},
	{id: "T05", name: "another CA for agents", set: tcp, change: put("serving/ca.crt", "konnectivity-agent-server/ca.crt"), want: "the agents' client certificate does not verify", also: []string{"C01", "C02", "C14"}},
	{id: "T05", name: "kube-apiserver's CA of others", set: tcp,
		change: put("serving/ca.crt", "konnectivity-apiserver-client/ca.crt"),
		want:   "the server's certificate for kube-apiserver does not verify", also: []string{"C01", "C02", "C14"}},
	{id: "T05", name: "server's CA of others", set: tcp, change: put("serving/ca.crt", "konnectivity-server/ca.crt"),
		want: "kube-apiserver's client certificate does not verify", also: []string{"C01", "C02", "C14"}},

	{id: "T06", name: "agents' host", set: static, replace: []string{"proxy-server-host: konnectivity.example.com",
		"proxy-server-host: 10.0.0.9"}, want: "clients connect to 10.0.0.9: "},
	{id: "T06", name: "kube-apiserver's URL", set: tcp, replace: []string{"url: https://127.0.0.1:8131",
		"url: https://konnectivity:8131"}, want: "clients connect to konnectivity: "},
	{id: "T06", name: "tlsServerName", set: tcp, replace: []string{"        tlsConfig:\n",
		"        tlsConfig:\n          tlsServerName: other\n"}, want: "clients connect to other: "},
	{id: "T06", name: "loopback in the server's kubeconfig", set: static, change: func(t *testing.T, dir string) {
		t.Helper()
		name := "konnectivity-server.kubeconfig"
		write(t, pair(dir, "kubeconfig"), name, strings.Replace(readFile(t, pair(dir, "kubeconfig", name)),
			"https://10.0.0.1:6443", "https://127.0.0.1:6443", 1))
	}, want: "clients connect to 127.0.0.1: "},

	{id: "T07", name: "mode", set: static, replace: []string{"--mode=grpc", "--mode=http-connect"},
		want: "--mode=http-connect, but kube-apiserver uses GRPC"},
	{id: "T07", name: "TCP to a socket", set: shipped{mode: "http-connect-uds"}, replace: []string{udsBlock, tcpBlock},
		want: "--uds-name is set, but kube-apiserver connects to https://127.0.0.1:8131"},
	{id: "T07", name: "another port", set: tcp, replace: []string{"url: https://127.0.0.1:8131",
		"url: https://127.0.0.1:8132"},
		want: "--server-bind-address=127.0.0.1 --server-port=8131, but kube-apiserver connects to https://127.0.0.1:8132"},
	{id: "T07", name: "no port", set: tcp, replace: []string{"url: https://127.0.0.1:8131", "url: https://127.0.0.1"},
		want: "kube-apiserver connects to https://127.0.0.1"},
	{id: "T07", name: "loopback of the other family", set: tcp,
		replace: []string{"url: https://127.0.0.1:8131", "url: https://[::1]:8131"},
		want:    "--server-bind-address=127.0.0.1"},
	{id: "T07", name: "all IPv4 addresses, dialled by IPv6", set: tcp,
		replace: []string{"url: https://127.0.0.1:8131", "url: https://[::1]:8131", "--server-bind-address=127.0.0.1",
			"--server-bind-address=0.0.0.0"}, want: "--server-bind-address=0.0.0.0"},
	{id: "T07", name: "two paths", set: static, replace: []string{"--uds-name=" + socketPath,
		"--uds-name=/run/other.socket"}, want: "kube-apiserver connects to " + socketPath},
	{id: "T07", name: "108 bytes", set: static, replace: []string{"konnectivity-server.socket",
		strings.Repeat("x", 108-len("/etc/kubernetes/konnectivity-server/"))}, want: "at most 107 bytes"},
	{id: "T07", name: "URL", set: static, replace: []string{"udsName: /etc", "udsName: unix:///etc", "--uds-name=/etc",
		"--uds-name=unix:///etc"}, want: "expected an absolute path"},
	{id: "T07", name: "not mounted", set: static,
		replace: []string{"    - mountPath: /etc/kubernetes/konnectivity-server\n      name: konnectivity-socket\n",
			"    - mountPath: /other\n      name: konnectivity-socket\n"},
		want: "no volume is mounted at /etc/kubernetes/konnectivity-server"},
	{id: "T07", name: "the socket itself", set: static,
		replace: []string{"mountPath: /etc/kubernetes/konnectivity-server\n", "mountPath: " + socketPath + "\n"},
		want:    "the socket itself is mounted"},
	{id: "T07", name: "read-only for the server", set: static,
		replace: []string{"    - mountPath: /etc/kubernetes/konnectivity-server\n      name: konnectivity-socket\n  " +
			"  - mount", "    - mountPath: /etc/kubernetes/konnectivity-server\n      name: konnectivity-socket\n   " +
			"   readOnly: true\n    - mount"},
		want: "read-only"},
	{id: "T07", name: "two directories", set: static, change: func(t *testing.T, dir string) {
		t.Helper()
		write(t, dir, "server.yaml", strings.Replace(readFile(t, dir+"/server.yaml"),
			"path: /etc/kubernetes/konnectivity-server\n", "path: /run/konnectivity-server\n", 1))
	}, want: "different volumes"},
	{id: "T07", name: "kubelet makes the directory", set: static,
		replace: []string{"type: Directory\n    name: konnectivity-socket",
			"type: DirectoryOrCreate\n    name: konnectivity-socket"}, want: "has the type DirectoryOrCreate"},
	{id: "T07", name: "another group", set: sidecar,
		replace: []string{"fsGroup: 65532\n        runAsNonRoot: true\n        runAsUser: 1001",
			"runAsNonRoot: true\n        runAsUser: 1001"},
		want: "kube-apiserver runs as user 1001 with groups []; the socket belongs to user 65532 and group 65532"},
	{id: "T07", name: "no user", set: static, change: func(t *testing.T, dir string) {
		t.Helper()
		text := strings.NewReplacer("    runAsGroup: 65532\n", "", "      runAsGroup: 65532\n", "").Replace(
			readFile(t, dir+"/server.yaml"))
		write(t, dir, "server.yaml", strings.ReplaceAll(text, "    runAsGroup: 65532\n", ""))
	}, want: "user and group of the server are not set"},

	{id: "T08", name: "static count", set: sidecar, replace: []string{leaseFlags, "        - --server-count=1\n",
		"        - --count-server-leases\n", "", "  replicas: 1\n",
		"  replicas: 3\n"}, want: "--server-count=1, but there are 3 replicas"},
	{id: "T08", name: "no count", set: sidecar, replace: []string{leaseFlags, "", "        - --count-server-leases\n",
		"", "  replicas: 1\n", "  replicas: 2\n"}, want: "--server-count=1, but there are 2 replicas"},
	{id: "T08", name: "Leases of the server only", set: static,
		replace: []string{"        - --count-server-leases\n", ""}, want: "agents lack --count-server-leases"},
	{id: "T08", name: "Leases of the agents only", set: sidecar,
		replace: []string{"        - --enable-lease-controller\n", ""}, want: "no --enable-lease-controller"},
	{id: "T08", name: "another namespace", set: static,
		replace: []string{"        - --count-server-leases\n        - --lease-namespace=konnectivity-leases\n",
			"        - --count-server-leases\n"}, want: "--lease-namespace=konnectivity-leases, but agents have " +
			"kube-system"},
	{id: "T08", name: "another label", set: static, replace: []string{"        - --count-server-leases\n", "        - --count-server-leases\n        - --lease-label=a=b\n"}, want: "--lease-label=k8s-app=konnectivity-server, but agents have a=b"},

	{id: "C06", name: "key of another", set: static, change: put("konnectivity-agent/tls.key",
		"konnectivity-agent-server/tls.key"), want: "does not match the certificate"},
}

// TestExpiry: Verify also reports certgen verify's findings about the key pairs.
func TestExpiry(t *testing.T) {
	t.Parallel()
	dir := newSet(t, static.files(t))
	report := check(t, dir)
	late, err := Verify(dir, Options{Now: report.GeneratedAt.AddDate(1, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	example{id: "C07", want: "expired at", also: []string{"T05"}}.compare(t, late)
	soon, err := Verify(dir, Options{Now: report.GeneratedAt.AddDate(1, 0, -20)})
	if err != nil {
		t.Fatal(err)
	}
	example{id: "C07", want: "expires at", severity: catalogue.Warning}.compare(t, soon)
}
