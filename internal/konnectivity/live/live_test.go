// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	restclient "k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
)

func agent(open, known int) Target {
	return Target{"agent", func(context.Context) ([]byte, error) {
		return fmt.Appendf(nil,
			"# TYPE konnectivity_network_proxy_agent_open_server_connections "+
				"gauge\nkonnectivity_network_proxy_agent_open_server_connections %d\n"+
				"# TYPE konnectivity_network_proxy_agent_known_server_count "+
				"gauge\nkonnectivity_network_proxy_agent_known_server_count %d\n", open, known), nil
	}}
}

func server(backends int) Target {
	return Target{"server", func(context.Context) ([]byte, error) {
		return fmt.Appendf(nil,
			"# TYPE konnectivity_network_proxy_server_ready_backends "+
				"gauge\nkonnectivity_network_proxy_server_ready_backends{proxy_strategy=\"default\"} %d\n",
			backends), nil
	}}
}

func TestCheck(t *testing.T) {
	failing := func(text string) Target {
		return Target{"agent", func(context.Context) ([]byte, error) { return nil, errors.New(text) }}
	}
	for name, tc := range map[string]struct {
		state State
		want  []string
	}{
		"well":      {State{2, []Target{agent(2, 2), agent(2, 2)}, []Target{server(2)}}, nil},
		"no agents": {State{1, nil, nil}, []string{"T11 konnectivity: expected agents, found none"}},
		"agent down": {State{1, []Target{failing("connection refused")}, nil},
			[]string{"T11 agent: read metrics: connection refused"}},
		"kube-apiserver without agent, gRPC": {State{1, []Target{failing("the server is currently unable to handle the request: error trying to reach service: No agent available")}, nil},
			[]string{"T12 agent: read metrics: the server is currently unable"}},
		"kube-apiserver without agent, HTTP CONNECT": {State{1,
			[]Target{failing("error trying to reach service: proxy error from 127.0.0.1:8131 while dialing " +
				"10.0.0.7:8093, code 500: 500 Internal Server Error")}, nil},
			[]string{"T12 agent: read metrics: error trying to reach service"}},
		"not metrics": {State{1, []Target{{"agent",
			func(context.Context) ([]byte, error) {
				return []byte("<html>"),
					nil
			}}}, nil}, []string{"T11 agent: text format parsing error"}},
		"one of two servers": {State{2, []Target{agent(1, 2)}, nil},
			[]string{"T12 agent: connected to 1 servers, but there are 2 kube-apiservers"}},
		"server without agents": {State{1, []Target{agent(1, 1)}, []Target{server(0)}},
			[]string{"T12 server: has no agent"}},
		"static count too low": {State{2, []Target{agent(1, 1)}, []Target{server(1), server(0)}}, []string{
			"T12 agent: connected to 1 servers", "T13 agent: expects 1 servers, but there are 2 kube-apiservers",
			"T12 server: has no agent",
		}},
		"static count too high": {State{1, []Target{agent(1, 3)}, nil},
			[]string{"T13 agent: expects 3 servers, but there are 1 kube-apiservers"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for i, f := range Check(t.Context(), tc.state) {
				line := f.ID + " " + f.Object + ": " + f.Evidence
				if i < len(tc.want) && strings.HasPrefix(line, tc.want[i]) {
					line = tc.want[i]
				}
				got = append(got, line)
				if f.Fix == "" || f.Severity == "" {
					t.Errorf("%s has no fix or severity", line)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAgents(t *testing.T) {
	pod := func(name string, phase corev1.PodPhase) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name,
				Labels: map[string]string{"k8s-app": "konnectivity-agent"}},
			Status: corev1.PodStatus{Phase: phase},
		}
	}
	client := fake.NewClientset(pod("a", corev1.PodRunning), pod("b", corev1.PodPending))
	var requested string
	current := agent(1, 1)
	client.AddProxyReactor("pods", func(action clienttesting.Action) (bool, restclient.ResponseWrapper, error) {
		get, ok := action.(clienttesting.ProxyGetAction)
		if !ok {
			return false, nil, nil
		}
		requested = get.GetScheme() + "://" + get.GetName() + ":" + get.GetPort() + "/" + get.GetPath()
		return true, response{current}, nil
	})
	agents, err := Agents(t.Context(), client)
	if err != nil || len(agents) != 1 || agents[0].Name != "Pod/a" {
		t.Fatalf("got %v, %v; want the running one", agents, err)
	}
	if got := Check(t.Context(), State{1, agents, nil}); len(got) > 0 {
		t.Errorf("got %v, want no findings", got)
	}
	if want := "http://a:8093/metrics"; requested != want {
		t.Errorf("requested %q, want %q", requested, want)
	}
	// The body of the response contains the reason.
	current = Target{"", func(context.Context) ([]byte, error) {
		return []byte("error trying to reach service: No agent available"),
			errors.New("the server is currently unable to handle the request")
	}}
	if got := Check(t.Context(), State{1, agents, nil}); len(got) != 1 || got[0].ID != "T12" {
		t.Errorf("got %v, want that kube-apiserver has no agent", got)
	}
}

// response is the response of a proxied pod.
type response struct{ target Target }

func (a response) DoRaw(ctx context.Context) ([]byte, error) { return a.target.Metrics(ctx) }
func (response) Stream(context.Context) (io.ReadCloser, error) {
	return nil, errors.New("not used")
}

func TestURL(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics" {
			http.NotFound(w, r)
			return
		}
		text, _ := server(1).Metrics(r.Context())
		_, _ = w.Write(text)
	}))
	defer s.Close()
	for path, want := range map[string]int{"/metrics": 0, "/other": 1} {
		got := Check(t.Context(), State{1, []Target{agent(1, 1)}, []Target{URL(s.Client(), s.URL+path)}})
		if len(got) != want {
			t.Errorf("%s: got %v, want %d findings", path, got, want)
		}
	}
}
