// SPDX-License-Identifier: Apache-2.0

package install

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
)

// TestWidgetDefaults checks that a minimal widget gets the same defaults in every version.
func TestWidgetDefaults(t *testing.T) {
	scheme := newScheme()
	want := &v1.Widget{Spec: v1.WidgetSpec{
		Model: "m", Grade: v1.WidgetGradeStandard, Replicas: new(int32(1)),
		Parts: []v1.WidgetPart{{Name: "a", Quantity: new(int32(1))}},
	}}
	for _, gv := range GroupVersions() {
		model := "model"
		if gv.Version == "v1alpha1" {
			model = "design"
		}
		data := fmt.Sprintf(`{"apiVersion":%q,"kind":"Widget","spec":{%q:"m","parts":[{"name":"a"}]}}`, gv, model)
		got, err := runtime.Decode(serializer.NewCodecFactory(scheme).UniversalDecoder(v1.SchemeGroupVersion),
			[]byte(data))
		if err != nil {
			t.Fatalf("decode %s: %v", data, err)
		}
		got.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
		if diff := cmp.Diff(runtime.Object(want), got); diff != "" {
			t.Errorf("v1 form of %s (-want +got):\n%s", data, diff)
		}
	}
}
