// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistration "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/pkg/envtest"
)

// TestForeignAgentsRejected checks that a foreign agent gets no tunnel, and that no agent accepts a
// foreign server. The agents of one kube-apiserver have tokens, those of the other certificates.
func TestForeignAgentsRejected(t *testing.T) {
	t.Parallel()
	e := start(t, envtest.Options{Network: envtest.EndpointRouting, Tunnels: []envtest.Tunnel{
		{Mode: envtest.GRPCOverUDS, Agents: 1, ServerCount: 1},
		{Mode: envtest.HTTPConnectOverTCP, Agents: 1, ServerCount: 1, MutualTLS: true},
	}})
	tokens, certificates := e.KubeAPIServers[0], e.KubeAPIServers[1]
	wrongAudience, err := e.AgentToken(t.Context(), "https://kubernetes.default.svc")
	if err != nil {
		t.Fatal(err)
	}
	pair := func(dir, cert, key string) []string {
		dir = filepath.Join(e.PKI(), dir)
		return []string{"--agent-cert=" + filepath.Join(dir, cert), "--agent-key=" + filepath.Join(dir, key)}
	}
	// With TLS 1.3 a write of the agent may fail because of the rejection before the agent reads
	// the reason.
	const refusedByTLS = "certificate required|broken pipe|connection reset by peer"
	for _, tc := range []struct {
		name string
		k    *envtest.KubeAPIServer
		args []string
		// says matches the log of the server if server is true, otherwise of the agent.
		server bool
		says   string
	}{
		{"wrong audience", tokens, []string{"--service-account-token-path=" + wrongAudience}, true,
			"Client authentication failed"},
		{"no token", tokens, []string{"--service-account-token-path="}, true,
			"Authentication context was not found in metadata"},
		{"wrong CA of the server", tokens, []string{"--ca-cert=" +
			filepath.Join(e.PKI(), certs.ServingCADir, certs.CertFile)}, false,
			"certificate signed by unknown authority"},
		// The server lists the CA that it accepts, and the agent then presents no certificate of
		// another.
		{"certificate of kube-apiserver's side", certificates,
			pair(certs.KonnectivityAPIServerClientDir, certs.CertFile, certs.KeyFile), false,
			refusedByTLS},
		{"no certificate", certificates, []string{"--agent-cert=", "--agent-key="}, false, refusedByTLS},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, err := e.NewAgent(t.Context(), tc.k, tc.args...)
			if err != nil {
				t.Fatal(err)
			}
			before, err := os.ReadFile(tc.k.ProxyServer.Log())
			if err != nil {
				t.Fatal(err)
			}
			if err := a.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			defer a.Kill()
			log, seen, says := a.Log(), 0, regexp.MustCompile(tc.says)
			if tc.server {
				log, seen = tc.k.ProxyServer.Log(), len(before)
			}
			e.Eventually(t, "the agent to be refused", envtest.WaitTimeout, func(context.Context) error {
				data, err := os.ReadFile(log)
				if err == nil && !says.Match(data[seen:]) {
					err = fmt.Errorf("%s does not say %q", log, tc.says)
				}
				return err
			})
			if err := a.Ready(t.Context()); err == nil {
				t.Error("the agent is ready, want that it has no server")
			}
			metrics, err := metricsOf(t.Context(), tc.k.ProxyServer)
			if got := sum(metrics, serverMetric+"ready_backends", nil); err != nil || got != 1 {
				t.Errorf("the server has %v agents (%v), want only that which is ours", got, err)
			}
		})
	}
	t.Run("black hole", func(t *testing.T) { blackHole(t, e) })
}

// blackHole registers another API whose server's packets are dropped. Other requests must not be
// affected.
func blackHole(t *testing.T, e *envtest.Environment) {
	address, err := e.BlackHole()
	if err != nil {
		t.Fatal(err)
	}
	admin, name, port, ready := e.Client(t), "https", int32(443), true
	meta := metav1.ObjectMeta{Name: "black-hole", Namespace: envtest.Namespace}
	if _, err := admin.CoreV1().Services(envtest.Namespace).Create(t.Context(), &corev1.Service{
		ObjectMeta: meta, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: name, Port: port}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	meta.Labels = map[string]string{discoveryv1.LabelServiceName: meta.Name}
	if _, err := admin.DiscoveryV1().EndpointSlices(envtest.Namespace).Create(t.Context(), &discoveryv1.EndpointSlice{
		ObjectMeta: meta, AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &port}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{address},
			Conditions: discoveryv1.EndpointConditions{Ready: &ready}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	client, err := apiregistration.NewForConfig(e.Admin(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.APIServices().Create(t.Context(), &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: "v1.hole.example.com"},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: "hole.example.com", Version: "v1", GroupPriorityMinimum: 1000, VersionPriority: 10,
			CABundle: caBundle(t, e),
			Service:  &apiregistrationv1.ServiceReference{Namespace: envtest.Namespace, Name: meta.Name, Port: &port},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	configs, err := e.AdminConfigs()
	if err != nil {
		t.Fatal(err)
	}
	for i, k := range e.KubeAPIServers {
		sent, slowest := 0, time.Duration(0)
		e.Eventually(t, "the agent to give up a dial into the black hole", envtest.WaitTimeout,
			func(ctx context.Context) error {
				began := time.Now()
				if err := get(ctx, configs[i], gadgets+"?limit=1"); err != nil {
					t.Errorf("our API beside the black hole: %v", err)
				}
				sent, slowest = sent+1, max(slowest, time.Since(began))
				metrics, err := metricsOf(ctx, k.Agents[0])
				if err == nil && sum(metrics, agentMetric+"endpoint_dial_failure_total",
					labels{"reason": "timeout"}) == 0 {
					err = errors.New("it has not")
				}
				return err
			})
		t.Logf("%s: %d requests to our API meanwhile, the slowest %s", k.URL, sent, slowest.Round(time.Millisecond))
	}
}

func caBundle(t *testing.T, e *envtest.Environment) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(e.PKI(), certs.ServingCADir, certs.CertFile))
	if err != nil {
		t.Fatal(err)
	}
	return data
}
