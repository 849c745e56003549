// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"example.com/extension-apiserver/pkg/envtest"

	"github.com/google/go-cmp/cmp"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// TestWidgetScaleInvalid checks that the widget's validation applies to the scale of each
// version, and that errors name the fields of Scale.
func TestWidgetScaleInvalid(t *testing.T) {
	namespace := shared.NewNamespace(t)
	newWidget(t, namespace, "w")
	eachWidgetVersion(t, func(t *testing.T, k kindCase) {
		client := k.client(t, shared.Admin(t), namespace)
		for replicas, message := range map[int]string{-1: "greater than or equal to 0",
			6: "must not be greater than spec.maxReplicas"} {
			patch := fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas)
			_, err := client.Patch(t.Context(), "w", types.MergePatchType, []byte(patch),
				metav1.PatchOptions{}, "scale")
			if diff := cmp.Diff([]string{"spec.replicas"}, invalidFields(t, err)); diff != "" ||
				!strings.Contains(err.Error(), message) {
				t.Errorf("%d replicas (-want +got):\n%s\n%v, want %s", replicas, diff, err, message)
			}
		}
		_, err := client.Patch(t.Context(), "w", types.MergePatchType, []byte(`{"metadata":{"uid":"other"}}`),
			metav1.PatchOptions{}, "scale")
		if !apierrors.IsConflict(err) {
			t.Errorf("scale of a widget with another UID: %v, want Conflict", err)
		}
	})
}

// TestWidgetAutoscaler checks that the HorizontalPodAutoscaler of the real
// kube-controller-manager reads the scale and reduces it to its maximum, which needs no metrics.
func TestWidgetAutoscaler(t *testing.T) {
	t.Parallel()
	namespace := shared.NewNamespace(t)
	client := widgetCase.client(t, shared.Admin(t), namespace)
	obj := widgetCase.object(t, "w")
	if err := unstructured.SetNestedField(obj.Object, int64(5), "spec", "replicas"); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Create(t.Context(), obj, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	autoscalers := shared.Client(t).AutoscalingV2().HorizontalPodAutoscalers(namespace)
	_, err := autoscalers.Create(t.Context(), &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: "w"},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: widgetCase.resource.GroupVersion().String(), Kind: "Widget", Name: "w"},
			MaxReplicas:    3,
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// The controller checks every 15 s.
	shared.Eventually(t, "the autoscaler to scale the widget", 2*envtest.WaitTimeout, func(ctx context.Context) error {
		widget, err := client.Get(ctx, "w", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if replicas, _, _ := unstructured.NestedInt64(widget.Object, "spec", "replicas"); replicas != 3 {
			hpa, err := autoscalers.Get(ctx, "w", metav1.GetOptions{})
			return errors.Join(fmt.Errorf("%d replicas, want 3; the autoscaler reports %+v", replicas,
				hpa.Status.Conditions), err)
		}
		return nil
	})
	shared.Eventually(t, "the autoscaler to say so", envtest.WaitTimeout, func(ctx context.Context) error {
		hpa, err := autoscalers.Get(ctx, "w", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(hpa.Status.Conditions, func(c autoscalingv2.HorizontalPodAutoscalerCondition) bool {
			return c.Type == autoscalingv2.AbleToScale && c.Status == corev1.ConditionTrue
		}) {
			return fmt.Errorf("conditions %+v, want AbleToScale", hpa.Status.Conditions)
		}
		return nil
	})
}
