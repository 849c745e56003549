// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"example.com/extension-apiserver/pkg/envtest"
)

const deprecation = "workshop.example.com/v1alpha1 Widget is deprecated in v1.36+, unavailable in v1.40+; use " +
	"workshop.example.com/v1 Widget"

// warnings collects the warnings of the server.
type warnings struct {
	mu  sync.Mutex
	got []string
}

func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.got = append(w.got, text)
}

// warned returns a copy of the configuration that collects warnings.
func warned(config *rest.Config) (*rest.Config, *warnings) {
	config, collected := rest.CopyConfig(config), &warnings{}
	config.WarningHandler = collected
	return config, collected
}

// TestWidgetDeprecated checks that each request in the deprecated version returns a warning, and
// is counted so that operators can find its remaining users. Requests in other versions return no
// warning.
func TestWidgetDeprecated(t *testing.T) {
	namespace := shared.NewNamespace(t)
	eachWidgetVersion(t, func(t *testing.T, k kindCase) {
		want := 0
		if k.resource.Version == "v1alpha1" {
			want = 1
		}
		config, warnings := warned(shared.Admin(t))
		client, name := k.client(t, config, namespace), "w-"+k.resource.Version
		for _, request := range []struct {
			verb string
			do   func() error
		}{
			{"create", func() error {
				_, err := client.Create(t.Context(), k.object(t, name), metav1.CreateOptions{})
				return err
			}},
			{"get", func() error {
				_, err := client.Get(t.Context(), name, metav1.GetOptions{})
				return err
			}},
			{"list", func() error {
				_, err := client.List(t.Context(), metav1.ListOptions{})
				return err
			}},
			{"watch", func() error {
				w, err := client.Watch(t.Context(), metav1.ListOptions{})
				if err == nil {
					w.Stop()
				}
				return err
			}},
			{"patch of the status", func() error {
				_, err := client.Patch(t.Context(), name, types.MergePatchType, []byte(`{"status":{"replicas":1}}`),
					metav1.PatchOptions{}, "status")
				return err
			}},
			{"delete", func() error { return client.Delete(t.Context(), name, metav1.DeleteOptions{}) }},
		} {
			warnings.got = nil
			if err := request.do(); err != nil {
				t.Fatalf("%s: %v", request.verb, err)
			}
			if got := warnings.got; len(got) != want || (want == 1 && got[0] != deprecation) {
				t.Errorf("%s: warnings %q, want %d of %q", request.verb, got, want, deprecation)
			}
		}
		labels := map[string]string{"group": k.resource.Group, "version": k.resource.Version, "resource": "widgets"}
		if count := metric(t, direct(t, shared), "apiserver_requested_deprecated_apis",
			labels); count != float64(2*want) {
			t.Errorf("apiserver_requested_deprecated_apis of %s: %v, want %d for the resource and its status",
				k.resource.Version, count, 2*want)
		}
	})
}

func init() {
	auditTests["deprecated widgets"] = func(t *testing.T, e *envtest.Environment, log string) {
		config := e.Admin(t)
		ids := auditIDs(config)
		namespace := e.NewNamespace(t)
		for _, version := range []string{"v1alpha1", "v1"} {
			k := inVersion(version)
			if _, err := k.client(t, config, namespace).Create(t.Context(), k.object(t, "w-"+version),
				metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		events := eventsOf(t, e, log, *ids)
		const deprecated, removed = "k8s.io/deprecated", "k8s.io/removed-release"
		if got := events[0].Annotations; got[deprecated] != "true" || got[removed] != "1.40" {
			t.Errorf("annotations of a request in v1alpha1: %v, want %s and %s", got, deprecated, removed)
		}
		if got, ok := events[1].Annotations[deprecated]; ok {
			t.Errorf("annotation %s of a request in v1: %s, want none", deprecated, got)
		}
	}
}
