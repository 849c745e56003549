// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistration "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"

	"example.com/extension-apiserver/pkg/envtest"
)

// cell is one tunnel configuration through which everything must work.
type cell struct {
	name   string
	tunnel envtest.Tunnel
}

// cells returns each mode with each way to choose an endpoint. Agents have tokens and count
// Leases, each except in one cell.
func cells() []cell {
	var all []cell
	for _, mode := range envtest.Modes() {
		for _, network := range []envtest.Network{envtest.ClusterIPRouting, envtest.EndpointRouting} {
			all = append(all, cell{fmt.Sprintf("%s/%s", mode, network), envtest.Tunnel{
				Mode: mode, Network: network, Agents: 1,
				MutualTLS: mode == envtest.HTTPConnectOverTCP && network == envtest.EndpointRouting,
			}})
			if mode == envtest.HTTPConnectOverUDS && network == envtest.EndpointRouting {
				all[len(all)-1].tunnel.ServerCount = 1
			}
		}
	}
	return all
}

// TestTunnels checks that the API works through every tunnel configuration. The metrics of
// kube-apiserver, server and agent, and the missing route, show that the tunnel carried the
// requests. Then it tests the same without a configuration, without an agent, and with a route
// past the tunnel.
func TestTunnels(t *testing.T) {
	t.Parallel()
	all := cells()
	log := filepath.Join(t.TempDir(), "audit.log")
	e := start(t, envtest.Options{Network: envtest.ClusterIPRouting, Tunnels: []envtest.Tunnel{all[0].tunnel},
		ServerArgs: auditArgs(t, log)})
	bigList(t, e)
	for i, c := range all {
		t.Run(c.name, func(t *testing.T) {
			if i > 0 {
				setTunnel(t, e, c.tunnel)
			}
			responds(t, e, e.Admin(t))
			noRoute(t, e)
			user := fmt.Sprintf("jane-%d", i)
			before, err := count(t.Context(), e)
			if err != nil {
				t.Fatal(err)
			}
			var seen error
			use(t, userConfig(t, e, user), func() { seen = carried(t.Context(), t, e, c.tunnel.Mode, before) })
			if seen != nil {
				t.Errorf("while everything was open: %v", seen)
			}
			dialled(t, e, c.tunnel.Network)
			audited(t, log, user)
			noRoute(t, e)
			if c.tunnel.Mode == envtest.HTTPConnectOverTCP && c.tunnel.Network == envtest.ClusterIPRouting {
				curled(t, e)
			}
			if c.tunnel.ServerCount == 0 {
				leased(t, e)
			}
			if c.tunnel.Network == envtest.EndpointRouting {
				noAgent(t, e, c.tunnel.Mode)
			}
		})
	}
	t.Run("no egress selector", func(t *testing.T) {
		setTunnel(t, e, envtest.Tunnel{Network: envtest.EndpointRouting})
		unavailable(t, e, "connect: network is unreachable")
	})
	// The measurements of the cells must detect a kube-apiserver that connects by itself.
	t.Run("past the tunnel", func(t *testing.T) {
		setTunnel(t, e, envtest.Tunnel{Network: envtest.EndpointRouting, Routed: true})
		responds(t, e, e.Admin(t))
		use(t, userConfig(t, e, "past"), func() {})
		if err := carried(t.Context(), t, e, envtest.GRPCOverUDS, counts{}); err == nil {
			t.Error("the metrics show that a tunnel carried requests that bypassed it")
		}
	})
}

// userConfig returns a configuration that impersonates a user with all attributes that the front
// proxy passes on.
func userConfig(t *testing.T, e *envtest.Environment, name string) *rest.Config {
	config := rest.CopyConfig(e.Admin(t))
	config.Impersonate = rest.ImpersonationConfig{
		UserName: name, UID: "8aee5a4a", Groups: []string{"system:masters", "makers of ö"},
		Extra: map[string][]string{"example.com/scope": {"a", "b c"}},
	}
	return config
}

// noRoute checks that the host of kube-apiserver reaches neither the server nor its Service.
func noRoute(t *testing.T, e *envtest.Environment) {
	t.Helper()
	for _, address := range []string{e.Servers[0].Address(), clusterIP(t, e)} {
		conn, err := only(e).Dial(t.Context(), address)
		if err == nil {
			conn.Close()
		}
		if !errors.Is(err, syscall.ENETUNREACH) {
			t.Fatalf("kube-apiserver's host dials %s: %v, want that the network is unreachable", address, err)
		}
	}
}

// clusterIP returns the address of the server's Service.
func clusterIP(t *testing.T, e *envtest.Environment) string {
	t.Helper()
	service, err := e.Client(t).CoreV1().Services(envtest.Namespace).Get(t.Context(), envtest.ServiceName,
		metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return service.Spec.ClusterIP + ":443"
}

// dialled checks that the agent connected to the address of the network routing, and to no other.
func dialled(t *testing.T, e *envtest.Environment, network envtest.Network) {
	t.Helper()
	want, other := clusterIP(t, e), e.Servers[0].Address()
	if network == envtest.EndpointRouting {
		want, other = other, want
	}
	data, err := os.ReadFile(only(e).Agents[0].Log())
	if err != nil {
		t.Fatal(err)
	}
	to := func(address string) bool {
		return strings.Contains(string(data), fmt.Sprintf("dialAddress=%q", address))
	}
	if !to(want) || to(other) {
		t.Errorf("the agent's log %s: want connections to %s, and none to %s", only(e).Agents[0].Log(), want, other)
	}
}

// noAgent kills the agent, and checks that requests then fail with the reason.
func noAgent(t *testing.T, e *envtest.Environment, mode envtest.Mode) {
	t.Helper()
	only(e).Agents[0].Kill()
	if mode == envtest.GRPCOverUDS {
		unavailable(t, e, "No agent available")
	} else {
		// kube-apiserver reports only the status code of the response.
		unavailable(t, e, "code 500: 500 Internal Server Error")
	}
}

// unavailable waits until requests fail with the reason, or until the APIService is unavailable
// with the reason.
func unavailable(t *testing.T, e *envtest.Environment, reason string) {
	t.Helper()
	client, err := apiregistration.NewForConfig(e.Admin(t))
	if err != nil {
		t.Fatal(err)
	}
	e.Eventually(t, "our API to be unavailable", envtest.WaitTimeout, func(ctx context.Context) error {
		failure := get(ctx, e.Admin(t), gadgets+"?limit=1")
		if failure == nil {
			return errors.New("a request succeeded, want that none does")
		}
		if strings.Contains(failure.Error(), reason) {
			return nil
		}
		service, err := client.APIServices().Get(ctx, "v1.workshop.example.com", metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range service.Status.Conditions {
			unavailable := c.Type == apiregistrationv1.Available && c.Status == apiregistrationv1.ConditionFalse
			if unavailable && c.Reason == "FailedDiscoveryCheck" && strings.Contains(c.Message, reason) {
				return nil
			}
		}
		return fmt.Errorf("got %w and conditions %v, want FailedDiscoveryCheck with %q", failure,
			service.Status.Conditions, reason)
	})
}

// auditArgs returns flags that make the server log all requests.
func auditArgs(t *testing.T, log string) []string {
	t.Helper()
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(policy, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"--audit-policy-file=" + policy, "--audit-log-path=" + log}
}

// audited checks that the server's audit log has each kind of request with the whole identity of
// the user.
func audited(t *testing.T, log, user string) {
	t.Helper()
	file, err := os.Open(log)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	done := sets.New[string]()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var event auditv1.Event
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			t.Fatal(err)
		}
		if event.User.Username != user || event.ObjectRef == nil {
			continue
		}
		done.Insert(strings.TrimSuffix(event.Verb+" "+event.ObjectRef.Resource+"/"+event.ObjectRef.Subresource, "/"))
		if event.User.UID != "8aee5a4a" || len(event.User.Extra["example.com/scope"]) != 2 ||
			!sets.New(event.User.Groups...).Has("makers of ö") {
			t.Errorf("%s %s as %+v, want the whole identity", event.Verb, event.RequestURI, event.User)
		}
	}
	want := sets.New("create identityreviews", "create widgets", "get widgets", "list widgets", "watch widgets",
		"update widgets", "patch widgets",
		"delete widgets", "list gadgets", "get widgets/console")
	if missing := want.Difference(done); missing.Len() > 0 {
		t.Errorf("our server has no audit event of %s for %v; it has %v", user, sets.List(missing), sets.List(done))
	}
}
