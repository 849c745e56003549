// SPDX-License-Identifier: Apache-2.0

package benchmark

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"example.com/extension-apiserver/pkg/envtest"
)

// BenchmarkAgents measures the memory of a server with many watches of one user, such as the
// agents of all nodes with one ServiceAccount, and the time until all of them receive an event.
// They connect through kube-apiserver, with 50 watches per connection.
func BenchmarkAgents(b *testing.B) {
	const perConnection, changes = 50, 20
	for _, agents := range []int{1000, 3000, 5000} {
		b.Run(fmt.Sprint(agents), func(b *testing.B) {
			e := envtest.New(b, envtest.Options{ServerArgs: []string{"--max-watches-per-user=6000",
				"--max-watches=8000"}})
			agent := e.User(b, "system:serviceaccount:agents:agent", rbacv1.PolicyRule{
				APIGroups: []string{resource.Group}, Resources: []string{resource.Resource},
				Verbs: []string{"list", "watch"},
			})
			admin, err := dynamic.NewForConfig(e.Admin(b))
			if err != nil {
				b.Fatal(err)
			}
			server := e.Servers[0]
			for b.Loop() {
				ctx, end := context.WithCancel(b.Context())
				var events atomic.Int64
				var client *http.Client
				for i := range agents {
					if i%perConnection == 0 {
						client = connect(b, agent)
					}
					watch(ctx, b, client, agent.Host, &events)
				}
				idle, err := server.VmHWM()
				if err != nil {
					b.Fatal(err)
				}
				if err := server.ResetVmHWM(); err != nil {
					b.Fatal(err)
				}
				began := time.Now()
				for i := range changes {
					create(b, admin, fmt.Sprintf("change-%d-%d", time.Now().UnixNano(), i), "")
				}
				e.Eventually(b, "all events", envtest.WaitTimeout, func(context.Context) error {
					if got, want := events.Load(), int64(agents*changes); got < want {
						return fmt.Errorf("%d of %d events", got, want)
					}
					return nil
				})
				took := time.Since(began)
				busy, err := server.VmHWM()
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(idle)/1024, "MiB-opening")
				b.ReportMetric(float64(busy)/1024, "MiB-events")
				b.ReportMetric(took.Seconds(), "s-for-20-changes")
				end()
			}
		})
	}
}

// connect returns a client with its own connection.
func connect(b testing.TB, user *rest.Config) *http.Client {
	b.Helper()
	config, err := rest.TLSConfigFor(user)
	if err != nil {
		b.Fatal(err)
	}
	transport, err := rest.HTTPWrappersForConfig(user, &http.Transport{TLSClientConfig: config,
		ForceAttemptHTTP2: true})
	if err != nil {
		b.Fatal(err)
	}
	return &http.Client{Transport: transport}
}

// watch opens a watch and counts its events until the context ends.
func watch(ctx context.Context, b *testing.B, client *http.Client, host string, events *atomic.Int64) {
	b.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet,
		host+"/apis/"+resource.GroupVersion().String()+"/"+resource.Resource+"?watch=1&resourceVersion=0", nil)
	if err != nil {
		b.Fatal(err)
	}
	resp, err := client.Do(req) //nolint:bodyclose // the goroutine closes it
	if err != nil {
		b.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(resp.Body)
		b.Fatalf("watch: %s %s", resp.Status, body)
	}
	go func() {
		defer resp.Body.Close()
		decoder := json.NewDecoder(resp.Body)
		for {
			var event struct{ Type string }
			if err := decoder.Decode(&event); err != nil {
				return
			}
			if event.Type == "ADDED" {
				events.Add(1)
			}
		}
	}()
}
