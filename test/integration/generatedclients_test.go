// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	v1ac "example.com/extension-apiserver/sample/apis/client/applyconfiguration/workshop/v1"
	"example.com/extension-apiserver/sample/apis/client/clientset/versioned"
	workshopv1 "example.com/extension-apiserver/sample/apis/client/clientset/versioned/typed/workshop/v1"
	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
	"example.com/extension-apiserver/sample/apis/workshop/v1alpha1"
	"example.com/extension-apiserver/sample/apis/workshop/v1beta1"
)

// TestGeneratedClients uses widgets with the generated clients of each version, in JSON and in
// protobuf.
func TestGeneratedClients(t *testing.T) {
	config, namespace := shared.Admin(t), shared.NewNamespace(t)
	for _, contentType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		t.Run(contentType, func(t *testing.T) {
			config := rest.CopyConfig(config)
			config.ContentType, config.AcceptContentTypes = contentType, contentType
			typed(t, newClients(t, config).WorkshopV1().Widgets(namespace))
		})
	}
	clients := newClients(t, config)
	t.Run("versions", func(t *testing.T) { everyVersion(t, clients, namespace) })
	t.Run("old client", func(t *testing.T) { oldClient(t, clients, namespace) })
}

func newClients(t *testing.T, config *rest.Config) *versioned.Clientset {
	t.Helper()
	clients, err := versioned.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return clients
}

func typed(t *testing.T, widgets workshopv1.WidgetInterface) {
	t.Helper()
	widget := &v1.Widget{ObjectMeta: metav1.ObjectMeta{Name: "w"},
		Spec: v1.WidgetSpec{Model: "m", Parts: []v1.WidgetPart{{Name: "p"}}}}
	created, err := widgets.Create(t.Context(), widget, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create: %v", err)
	}
	want := v1.WidgetSpec{
		Model: "m", Grade: v1.WidgetGradeStandard, Replicas: new(int32(1)),
		Parts: []v1.WidgetPart{{Name: "p", Quantity: new(int32(1))}},
	}
	if diff := cmp.Diff(want, created.Spec); diff != "" {
		t.Errorf("created, with the defaults (-want +got):\n%s", diff)
	}
	events, err := widgets.Watch(t.Context(), metav1.ListOptions{ResourceVersion: created.ResourceVersion,
		FieldSelector: "metadata.name=w"})
	if err != nil {
		t.Fatalf("watch: %v", err)
	}
	defer events.Stop()
	created.Spec.Replicas = new(int32(3))
	updated, err := widgets.Update(t.Context(), created, metav1.UpdateOptions{})
	if err != nil {
		t.Fatalf("update: %v", err)
	}
	if diff := cmp.Diff(updated, nextTyped(t, events, watch.Modified)); diff != "" {
		t.Errorf("watch (-updated +seen):\n%s", diff)
	}
	applied, err := widgets.Apply(t.Context(), v1ac.Widget("w", created.Namespace).WithSpec(
		v1ac.WidgetSpec().WithParts(v1ac.WidgetPart().WithName("q"))),
		metav1.ApplyOptions{FieldManager: "typed"})
	if err != nil || len(applied.Spec.Parts) != 2 {
		t.Fatalf("apply: %+v, error %v; want the parts p and q", applied, err)
	}
	applied.Status = v1.WidgetStatus{Replicas: 3, ReadyReplicas: 2, Conditions: []metav1.Condition{{
		Type: "Ready", Status: metav1.ConditionFalse, Reason: "Test", LastTransitionTime: metav1.Now().Rfc3339Copy(),
	}}}
	got, err := widgets.UpdateStatus(t.Context(), applied, metav1.UpdateOptions{})
	if err != nil {
		t.Fatalf("update of the status: %v", err)
	}
	if diff := cmp.Diff(applied.Status, got.Status); diff != "" {
		t.Errorf("status (-sent +got):\n%s", diff)
	}
	list, err := widgets.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 {
		t.Fatalf("list: %+v, error %v; want 1", list, err)
	}
	got.TypeMeta = metav1.TypeMeta{}
	list.Items[0].TypeMeta = metav1.TypeMeta{}
	if diff := cmp.Diff(*got, list.Items[0]); diff != "" {
		t.Errorf("listed (-want +got):\n%s", diff)
	}
	if err := widgets.Delete(t.Context(), "w", metav1.DeleteOptions{}); err != nil {
		t.Errorf("delete: %v", err)
	}
	if _, err := widgets.Get(t.Context(), "w", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("get after the deletion: %v, want NotFound", err)
	}
}

var (
	specV1 = v1.WidgetSpec{
		Model: "pendulum", Grade: v1.WidgetGradeStandard, Replicas: new(int32(2)), MaxReplicas: new(int32(5)),
		Parts: []v1.WidgetPart{{Name: "screw", Quantity: new(int32(12))},
			{Name: "frame", Quantity: new(int32(1)), Material: "oak"}},
	}
	specV1beta1 = v1beta1.WidgetSpec{
		Model: "pendulum", Grade: v1beta1.WidgetGradeStandard, Replicas: new(int32(2)), MaxReplicas: new(int32(5)),
		Parts: []v1beta1.WidgetPart{{Name: "screw", Quantity: new(int32(12))},
			{Name: "frame", Quantity: new(int32(1)), Material: "oak"}},
	}
	specV1alpha1 = v1alpha1.WidgetSpec{
		Design: "pendulum", Quality: v1alpha1.WidgetQualityStandard,
		Scale: v1alpha1.WidgetScale{Desired: new(int32(2)), Limit: new(int32(5))},
		Parts: []v1alpha1.WidgetPart{{Name: "screw", Count: new(int32(12))}, {Name: "frame", Count: new(int32(1))}},
	}
)

// everyVersion checks that an object that is written in one version can be read in every other.
// Data for which a version has no field is in one of its annotations.
func everyVersion(t *testing.T, clients versioned.Interface, namespace string) {
	const material = v1alpha1.MaterialPrefix + "frame"
	create := map[string]func(metav1.ObjectMeta) error{
		"v1": func(meta metav1.ObjectMeta) error {
			_, err := clients.WorkshopV1().Widgets(namespace).Create(t.Context(),
				&v1.Widget{ObjectMeta: meta, Spec: specV1}, metav1.CreateOptions{})
			return err
		},
		"v1beta1": func(meta metav1.ObjectMeta) error {
			_, err := clients.WorkshopV1beta1().Widgets(namespace).Create(t.Context(),
				&v1beta1.Widget{ObjectMeta: meta, Spec: specV1beta1}, metav1.CreateOptions{})
			return err
		},
		"v1alpha1": func(meta metav1.ObjectMeta) error {
			meta.Annotations = map[string]string{material: "oak"}
			_, err := clients.WorkshopV1alpha1().Widgets(namespace).Create(t.Context(),
				&v1alpha1.Widget{ObjectMeta: meta, Spec: specV1alpha1}, metav1.CreateOptions{})
			return err
		},
	}
	for version, do := range create {
		name := "by-" + version
		if err := do(metav1.ObjectMeta{Name: name}); err != nil {
			t.Fatal(err)
		}
		inV1, err := clients.WorkshopV1().Widgets(namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		inBeta, err := clients.WorkshopV1beta1().Widgets(namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		inOld, err := clients.WorkshopV1alpha1().Widgets(namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]any{specV1, specV1beta1, specV1alpha1},
			[]any{inV1.Spec, inBeta.Spec, inOld.Spec}); diff != "" {
			t.Errorf("written in %s (-want +got):\n%s", version, diff)
		}
		got := []string{inV1.Annotations[material], inBeta.Annotations[material], inOld.Annotations[material]}
		if diff := cmp.Diff([]string{"", "", "oak"}, got); diff != "" {
			t.Errorf("written in %s: annotation of the material (-want +got):\n%s", version, diff)
		}
	}
}

// oldClient checks that a client of v1alpha1 that reads, changes and writes back an object keeps
// data for which its version has no field, and its own changes.
func oldClient(t *testing.T, clients versioned.Interface, namespace string) {
	widgets := clients.WorkshopV1().Widgets(namespace)
	if _, err := widgets.Create(t.Context(), &v1.Widget{ObjectMeta: metav1.ObjectMeta{Name: "kept"}, Spec: specV1},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	oldWidgets := clients.WorkshopV1alpha1().Widgets(namespace)
	read, err := oldWidgets.Get(t.Context(), "kept", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	read.Spec.Scale.Desired, read.Spec.Remark = new(int32(4)), "for the hall"
	if _, err := oldWidgets.Update(t.Context(), read, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	got, err := widgets.Get(t.Context(), "kept", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := specV1
	want.Replicas = new(int32(4))
	if diff := cmp.Diff(want, got.Spec); diff != "" || got.Annotations[v1alpha1.RemarkAnnotation] != "for the hall" {
		t.Errorf("widget after the old client: annotations %v, want the remark (-want +got):\n%s",
			got.Annotations, diff)
	}
}
