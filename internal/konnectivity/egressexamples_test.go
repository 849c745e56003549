// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"strings"
	"testing"

	"example.com/extension-apiserver/internal/certs/verify"
)

const (
	socketPath = "/etc/kubernetes/konnectivity-server/konnectivity-server.socket"
	udsBlock   = "      uds:\n        udsName: " + socketPath + "\n"
	tcpBlock   = "      tcp:\n        url: https://127.0.0.1:8131\n        tlsConfig:\n" +
		"          caBundle: /etc/kubernetes/konnectivity/konnectivity-apiserver-client/ca.crt\n" +
		"          clientCert: /etc/kubernetes/konnectivity/konnectivity-apiserver-client/tls.crt\n" +
		"          clientKey: /etc/kubernetes/konnectivity/konnectivity-apiserver-client/tls.key\n"
)

// egressExamples are about kube-apiserver's configuration, and about the socket.
var egressExamples = []example{
	{id: "K01", name: "no configuration", set: static, replace: []string{"kind: EgressSelectorConfiguration", "kind: Other"}, want: "expected a file grpc-uds.yaml"},
	{id: "K01", name: "kube-apiserver without the flag", set: static, replace: []string{"    - --egress-selector-config-file=/etc/kubernetes/konnectivity/egress/grpc-uds.yaml\n", ""},
		want: "expected --egress-selector-config-file on kube-apiserver"},
	{id: "K01", name: "no server", set: static, replace: []string{"name: konnectivity-server\n    ports", "name: x\n    ports", "proxy-server:", "other:"}, want: "expected a container konnectivity-server"},
	{id: "K01", name: "no agents", set: static, replace: []string{"name: konnectivity-agent\n        ports", "name: x\n        ports", "proxy-agent:", "other:"}, want: "expected a container konnectivity-agent"},
	{id: "K01", name: "misspelt field", set: static, replace: []string{"  hostNetwork: true\n", "  hostNetwrok: true\n"}, want: "hostNetwrok", also: []string{"K01"}},
	{id: "K01", name: "no kube-apiserver", set: static, replace: []string{"name: kube-apiserver\n    volumeMounts", "name: x\n    volumeMounts", "/kube-apiserver:", "/other:"},
		want: "its flags, groups and mounts were not checked", severity: verify.Info},
	{id: "K01", name: "no APIService", set: static, replace: []string{"apiregistration.k8s.io/v1\n", "example.com/v1\n"}, want: "expected an APIService", severity: verify.Info},
	{id: "K02", name: "v1", set: static, replace: []string{"apiserver.k8s.io/v1beta1", "apiserver.k8s.io/v1"}, want: "there is no v1"},
	{id: "K02", name: "unknown field", set: static, replace: []string{"        udsName:", "        udsname:"}, want: `unknown field "egressSelections[0].connection.transport.uds.udsname"`},
	{id: "K02", name: "master", set: static, replace: []string{"- name: controlplane", "- name: master"}, want: "deprecated name"},
	{id: "K02", name: "other name", set: static, replace: []string{"- name: controlplane", "- name: nodes"}, want: `Unsupported value: "nodes"`},
	{id: "K02", name: "twice", set: static, replace: []string{"- name: controlplane", "- name: etcd"}, want: "Duplicate"},
	{id: "K02", name: "GRPC over TCP", set: static, replace: []string{udsBlock, tcpBlock}, want: "kube-apiserver speaks GRPC over a Unix socket only", also: []string{"K06"}},
	{id: "K02", name: "no client certificate", set: tcp, change: remove("konnectivity-apiserver-client", "tls.crt"), want: "TLS client cert does not exist", also: []string{"K15"}},
	{id: "K02", name: "key of another", set: tcp, change: put("konnectivity-agent/tls.key", "konnectivity-apiserver-client/tls.key"), want: "private key does not match public key", also: []string{"C06"}},
	{id: "K03", name: "http", set: tcp, replace: []string{strings.TrimPrefix(tcpBlock, "      tcp:\n"), "        url: http://127.0.0.1:8131\n"}, want: "http:// URL"},
	{id: "K04", name: "no cluster", set: static, replace: []string{"- name: cluster\n", "- name: controlplane\n", "- name: controlplane\n  connection: {proxyProtocol: Direct}\n", ""}, want: "no selection has the name cluster"},
	{id: "K04", name: "direct", set: static, replace: []string{"    proxyProtocol: GRPC\n    transport:\n" + udsBlock, "    proxyProtocol: Direct\n"}, want: "Direct"},
	{id: "K05", name: "public CAs", set: tcp, replace: []string{"          caBundle: /etc/kubernetes/konnectivity/konnectivity-apiserver-client/ca.crt\n", ""}, want: "tlsConfig has no caBundle"},
	{id: "K06", name: "mode", set: static, replace: []string{"--mode=grpc", "--mode=http-connect"}, want: "--mode=http-connect, kube-apiserver speaks GRPC"},
	{id: "K06", name: "TCP to a socket", set: shipped{mode: "http-connect-uds"}, replace: []string{udsBlock, tcpBlock}, want: "--uds-name is set, kube-apiserver dials https://127.0.0.1:8131"},
	{id: "K06", name: "socket to TCP", set: shipped{mode: "http-connect-tcp"}, replace: []string{tcpBlock, udsBlock}, want: "no --uds-name, kube-apiserver dials the socket", also: []string{"K08"}},
	{id: "K06", name: "port", set: tcp, replace: []string{"--server-port=8131", "--server-port=8130"}, want: "--server-port=8130, kube-apiserver dials https://127.0.0.1:8131"},
	{id: "K06", name: "port beside a socket", set: static, replace: []string{"--server-port=0", "--server-port=8131"}, want: "the server wants 0"},
	{id: "K07", name: "two paths", set: static, replace: []string{"--uds-name=" + socketPath, "--uds-name=/etc/kubernetes/konnectivity-server/other.socket"}, want: "kube-apiserver dials " + socketPath},
	{id: "K07", name: "108 bytes", set: static, replace: []string{"konnectivity-server.socket", strings.Repeat("x", 108-len("/etc/kubernetes/konnectivity-server/"))}, want: "has 108 bytes"},
	{id: "K07", name: "URL", set: static, replace: []string{"udsName: /etc", "udsName: unix:///etc", "--uds-name=/etc", "--uds-name=unix:///etc"}, want: "expected an absolute path", also: []string{"K08"}},
	{id: "K08", name: "not mounted", set: static, replace: []string{"    - mountPath: /etc/kubernetes/konnectivity-server\n      name: konnectivity-socket\n", "    - mountPath: /other\n      name: konnectivity-socket\n"},
		want: "no volume is mounted at /etc/kubernetes/konnectivity-server"},
	{id: "K08", name: "the socket itself", set: static, replace: []string{"mountPath: /etc/kubernetes/konnectivity-server\n", "mountPath: " + socketPath + "\n"}, want: "the socket itself is mounted"},
	{id: "K08", name: "read-only for the server", set: sidecar, replace: []string{"mountPath: /etc/kubernetes/konnectivity-server\n          name: konnectivity-socket\n",
		"mountPath: /etc/kubernetes/konnectivity-server\n          readOnly: true\n          name: konnectivity-socket\n", "          readOnly: true\n          name: konnectivity-socket\n          readOnly: true\n",
		"          name: konnectivity-socket\n          readOnly: true\n"}, want: "read-only"},
	{id: "K08", name: "no volume", set: static, replace: []string{"    name: konnectivity-socket\n  - hostPath", "    name: other\n  - hostPath"}, want: "is mounted and not there"},
	{id: "K08", name: "two directories", set: static, change: func(t *testing.T, dir string) {
		t.Helper()
		write(t, dir, "server.yaml", strings.Replace(readFile(t, dir+"/server.yaml"), "path: /etc/kubernetes/konnectivity-server\n", "path: /run/konnectivity-server\n", 1))
	}, want: "different volumes"},
	{id: "K09", name: "another group", set: sidecar, replace: []string{"fsGroup: 65532\n        runAsNonRoot: true\n        runAsUser: 1001", "runAsNonRoot: true\n        runAsUser: 1001"},
		want: "kube-apiserver runs as user 1001 with groups []; the socket belongs to user 65532 and group 65532"},
	{id: "K09", name: "no user", set: static, change: func(t *testing.T, dir string) {
		t.Helper()
		text := strings.NewReplacer("    runAsGroup: 65532\n", "", "      runAsGroup: 65532\n", "").Replace(readFile(t, dir+"/server.yaml"))
		write(t, dir, "server.yaml", strings.ReplaceAll(text, "    runAsGroup: 65532\n", ""))
	}, want: "user and group of the server are not set"},
	{id: "K31", name: "kubelet makes it", set: static, replace: []string{"type: Directory\n    name: konnectivity-socket", "type: DirectoryOrCreate\n    name: konnectivity-socket"}, want: "has the type DirectoryOrCreate"},
	{id: "K31", name: "root", set: static, replace: []string{"runAsUser: 65532\n      seccomp", "runAsUser: 0\n      seccomp"}, want: "runs as root"},
}
