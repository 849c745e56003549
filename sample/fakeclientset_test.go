// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workshopv1 "example.com/extension-apiserver/sample/apis/client/applyconfiguration/workshop/v1"
	"example.com/extension-apiserver/sample/apis/client/clientset/versioned/fake"
	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
)

// TestFakeClientset checks that the generated fake clientset creates and applies objects, merges
// lists by key, and extracts the fields that a manager applied, as the fake of client-go does.
func TestFakeClientset(t *testing.T) {
	clients := fake.NewClientset(&v1.Gadget{ObjectMeta: metav1.ObjectMeta{Name: "g"}})
	if _, err := clients.WorkshopV1().Gadgets().Get(t.Context(), "g", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	widgets := clients.WorkshopV1().Widgets("demo")
	created := &v1.Widget{ObjectMeta: metav1.ObjectMeta{Name: "w"},
		Spec: v1.WidgetSpec{Model: "m", Parts: []v1.WidgetPart{{Name: "frame", Material: "oak"}}}}
	if _, err := widgets.Create(t.Context(), created, metav1.CreateOptions{FieldManager: "creator"}); err != nil {
		t.Fatal(err)
	}
	configuration := workshopv1.Widget("w", "demo").WithSpec(
		workshopv1.WidgetSpec().WithParts(workshopv1.WidgetPart().WithName("screw").WithQuantity(12)))
	applied, err := widgets.Apply(t.Context(), configuration, metav1.ApplyOptions{FieldManager: "applier"})
	if err != nil {
		t.Fatal(err)
	}
	want := v1.WidgetSpec{Model: "m", Parts: []v1.WidgetPart{{Name: "frame", Material: "oak"},
		{Name: "screw", Quantity: new(int32(12))}}}
	if diff := cmp.Diff(want, applied.Spec); diff != "" {
		t.Errorf("applied (-want +got):\n%s", diff)
	}
	extracted, err := workshopv1.ExtractWidget(applied, "applier")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(configuration.Spec, extracted.Spec); diff != "" {
		t.Errorf("extracted (-want +got):\n%s", diff)
	}
}
