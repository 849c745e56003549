// SPDX-License-Identifier: Apache-2.0

package install

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"example.com/extension-apiserver/sample/apis/workshop"
)

// TestWidgetDefaults: the least that a client can send gets the same defaults in every version.
func TestWidgetDefaults(t *testing.T) {
	scheme := newScheme()
	want := &workshop.Widget{Spec: workshop.WidgetSpec{
		Model: "m", Grade: workshop.WidgetGradeStandard, Replicas: new(int32(1)),
		Parts: []workshop.WidgetPart{{Name: "a", Quantity: new(int32(1))}},
	}}
	for _, gv := range GroupVersions() {
		model := "model"
		if gv.Version == "v1alpha1" {
			model = "design"
		}
		data := fmt.Sprintf(`{"apiVersion":%q,"kind":"Widget","spec":{%q:"m","parts":[{"name":"a"}]}}`, gv, model)
		got, err := runtime.Decode(serializer.NewCodecFactory(scheme).UniversalDecoder(workshop.SchemeGroupVersion),
			[]byte(data))
		if err != nil {
			t.Fatalf("decode %s: %v", data, err)
		}
		if diff := cmp.Diff(runtime.Object(want), got); diff != "" {
			t.Errorf("internal form of %s (-want +got):\n%s", data, diff)
		}
	}
}
