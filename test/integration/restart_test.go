// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/extension-apiserver/pkg/envtest"
)

// TestRestarts checks that objects survive a restart and a crash of the server, and a restart of
// kube-apiserver. The API recovers by itself, with embedded and with external etcd.
func TestRestarts(t *testing.T) {
	for name, options := range map[string]envtest.Options{
		"embedded etcd": {},
		"external etcd": {ExternalEtcd: true},
	} {
		t.Run(name, func(t *testing.T) {
			e := envtest.New(t, options)
			client := gadgetCase.client(t, e.Admin(t), "")
			want, err := client.Create(t.Context(), gadgetCase.object(t, "g"), metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for _, step := range []struct {
				name string
				do   func() error
			}{
				{"restart of our server", func() error { return e.RestartServer(t.Context(), e.Servers[0]) }},
				{"crash of our server", func() error { return e.CrashServer(t.Context(), e.Servers[0]) }},
				{"restart of kube-apiserver", func() error {
					return e.RestartKubeAPIServer(t.Context(), e.KubeAPIServers[0])
				}},
			} {
				if err := step.do(); err != nil {
					t.Fatalf("%s: %v", step.name, err)
				}
				e.Eventually(t, "the object after the "+step.name, envtest.WaitTimeout, func(ctx context.Context) error {
					got, err := client.Get(ctx, "g", metav1.GetOptions{})
					if err == nil {
						if diff := cmp.Diff(want, got); diff != "" {
							t.Fatalf("after the %s (-before +after):\n%s", step.name, diff)
						}
					}
					return err
				})
				obj := gadgetCase.object(t, "")
				obj.SetGenerateName("after-")
				e.Eventually(t, "a write after the "+step.name, envtest.WaitTimeout, func(ctx context.Context) error {
					_, err := client.Create(ctx, obj, metav1.CreateOptions{})
					return err
				})
			}
		})
	}
}
