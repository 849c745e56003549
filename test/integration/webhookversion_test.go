// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestEngineWebhookVersions: a webhook that asked for v1 is asked about writes in every version, and sees them as v1: an old
// version is no way around it.
func TestEngineWebhookVersions(t *testing.T) {
	s, namespace := newWebhookServer(t), newNamespace(t, shared)
	inV1 := rule("engines", onCreate)
	inV1.APIVersions = []string{"v1"}
	h := webhook{name: "in-v1", label: "versions", rule: inV1, answer: allow}
	h.apply(t, s, namespace)
	waitForWebhooks(t, s, namespace)
	eachEngineVersion(t, func(t *testing.T, k kindCase) {
		obj := k.object(t, "w-"+k.resource.Version)
		obj.SetLabels(map[string]string{caseLabel: h.label})
		if _, err := k.client(t, adminConfig(t, shared), namespace).Create(t.Context(), obj, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		asked := s.take(h)
		if len(asked) != 1 {
			t.Fatalf("asked %d times, want once", len(asked))
		}
		var seen struct {
			APIVersion string
			Spec       struct{ Model string }
		}
		if err := json.Unmarshal(asked[0].Object.Raw, &seen); err != nil {
			t.Fatal(err)
		}
		got := []string{asked[0].Resource.Version, asked[0].RequestResource.Version, seen.APIVersion, seen.Spec.Model, string(asked[0].Operation)}
		want := []string{"v1", k.resource.Version, inVersion("v1").resource.GroupVersion().String(), "pendulum", string(admissionv1.Create)}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("version that matched, that of the request, that of the object, its model, and the operation (-want +got):\n%s", diff)
		}
	})
}
