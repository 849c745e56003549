// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"example.com/extension-apiserver/pkg/envtest"
)

// startKubelet creates a node whose kubelet only serves the logs of pods, and returns its name.
func startKubelet(t *testing.T, e *envtest.Environment, log func(pod string) string) string {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		// /containerLogs/NAMESPACE/POD/CONTAINER
		parts := strings.Split(req.URL.Path, "/")
		if len(parts) != 5 || parts[1] != "containerLogs" {
			http.NotFound(w, req)
			return
		}
		_, _ = io.WriteString(w, log(parts[3]))
	}))
	t.Cleanup(server.Close)
	nodes := e.Client(t).CoreV1().Nodes()
	node, err := nodes.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "logs-"}},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := nodes.Delete(context.WithoutCancel(t.Context()), node.Name, metav1.DeleteOptions{}); err != nil {
			t.Errorf("delete node: %v", err)
		}
	})
	// The controllers also write the node.
	status := fmt.Appendf(nil, `{"status": {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
"daemonEndpoints": {"kubeletEndpoint": {"Port": %d}}}}`, portOf(t, server.Listener))
	if _, err := nodes.Patch(t.Context(), node.Name, types.MergePatchType, status, metav1.PatchOptions{},
		"status"); err != nil {
		t.Fatal(err)
	}
	return node.Name
}

// crashing returns an injection of a server whose only pod crashes after it logged the line, in
// which NAMESPACE stands for the namespace of its ServiceAccount.
func crashing(line string) func(*fixture) {
	return func(f *fixture) {
		line := strings.ReplaceAll(line, "NAMESPACE", f.namespace)
		node := startKubelet(f.T, f.env, func(string) string { return "Starting\n" + line + "\nStopping\n" })
		f.pod(waiting("CrashLoopBackOff"), func(pod *corev1.Pod) { pod.Spec.NodeName = node })
		f.service(clusterIP(443, selector))
		f.registerAt(443, nil)
	}
}

// Lines that k8s.io/sample-apiserver v0.37 logs with these faults.
const (
	logPrefix      = `E1130 08:00:00.785010       1 run.go:72] "command failed" err="`
	reflector      = `E1130 08:00:00.210707       1 reflector.go:227] "Failed to watch" err="failed to list `
	trustForbidden = logPrefix + `unable to load configmap based request-header-client-ca-file: configmaps ` +
		`\"extension-apiserver-authentication\" is forbidden: User \"system:serviceaccount:NAMESPACE:server\" cannot ` +
		`get resource \"configmaps\" in API group \"\" in the namespace \"kube-system\""`
	trustUnreachable = logPrefix + `unable to load configmap based request-header-client-ca-file: Get ` +
		`\"https://10.96.0.1:443/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication\": ` +
		`dial tcp 10.96.0.1:443: connect: connection refused"`
	noTrust = logPrefix + `unable to load configmap based request-header-client-ca-file: missing content for CA ` +
		`bundle \"client-ca::kube-system::extension-apiserver-authentication::requestheader-client-ca-file\""`
	otherKey        = logPrefix + `tls: private key does not match public key"`
	policyForbidden = reflector + `*v1.MutatingAdmissionPolicy: mutatingadmissionpolicies.admissionregistration.k8s.io ` +
		`is forbidden: User \"system:serviceaccount:NAMESPACE:server\" cannot list resource ` +
		`\"mutatingadmissionpolicies\" in API group \"admissionregistration.k8s.io\" at the cluster scope" ` +
		`logger="UnhandledError" type="*v1.MutatingAdmissionPolicy"`
	policyNotServed = reflector + `*v1.MutatingAdmissionPolicy: the server could not find the requested resource ` +
		`(get mutatingadmissionpolicies.admissionregistration.k8s.io)" logger="UnhandledError"`
	etcdUnreachable = `W1130 08:00:00.118745       1 logging.go:55] [core] [Channel #1 SubChannel #2] grpc: ` +
		`addrConn.createTransport failed to connect to {Addr: "127.0.0.1:2379", ServerName: "127.0.0.1:2379", }. Err: ` +
		`connection error: desc = "transport: Error while dialing: dial tcp 127.0.0.1:2379: connect: connection refused"`
)
