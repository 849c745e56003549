// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/scale"

	"example.com/extension-apiserver/pkg/envtest"
)

// scaleClient is the one of the HorizontalPodAutoscaler: it finds the kind of the scale in discovery.
func scaleClient(t *testing.T, namespace string) scale.ScaleInterface {
	t.Helper()
	cached := memory.NewMemCacheClient(adminClient(t, shared).Discovery())
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(cached)
	client, err := scale.NewForConfig(adminConfig(t, shared), mapper, dynamic.LegacyAPIPathResolverFunc, scale.NewDiscoveryScaleKindResolver(cached))
	if err != nil {
		t.Fatal(err)
	}
	return client.Scales(namespace)
}

// TestEngineScale: a client that only knows autoscaling/v1 Scale reads and changes the number of replicas.
func TestEngineScale(t *testing.T) {
	namespace := newNamespace(t, shared)
	engines := engineCase.client(t, adminConfig(t, shared), namespace)
	newEngine(t, namespace, "w")
	if _, err := engines.Patch(t.Context(), "w", types.MergePatchType, []byte(`{"status":{"replicas":1,"selector":"app=w"}}`), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	before, err := engines.Get(t.Context(), "w", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	scales, gr := scaleClient(t, namespace), engineCase.resource.GroupResource()
	got, err := scales.Get(t.Context(), gr, "w", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := &autoscalingv1.Scale{
		TypeMeta: metav1.TypeMeta{APIVersion: "autoscaling/v1", Kind: "Scale"},
		ObjectMeta: metav1.ObjectMeta{Name: "w", Namespace: namespace, UID: before.GetUID(),
			ResourceVersion: before.GetResourceVersion(), CreationTimestamp: before.GetCreationTimestamp()},
		Spec:   autoscalingv1.ScaleSpec{Replicas: 2},
		Status: autoscalingv1.ScaleStatus{Replicas: 1, Selector: "app=w"},
	}
	got.TypeMeta = want.TypeMeta
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("scale (-want +got):\n%s", diff)
	}
	got.Spec.Replicas = 4
	stale := got.DeepCopy()
	if got, err = scales.Update(t.Context(), gr, got, metav1.UpdateOptions{}); err != nil || got.Spec.Replicas != 4 {
		t.Fatalf("update: %v, %v; want 4 replicas", got, err)
	}
	after, err := engines.Get(t.Context(), "w", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	replicas, _, _ := unstructured.NestedInt64(after.Object, "spec", "replicas")
	if replicas != 4 || after.GetGeneration() != before.GetGeneration()+1 || after.GetResourceVersion() != got.ResourceVersion {
		t.Errorf("engine after its scale: %d replicas, generation %d, resourceVersion %s; want 4, %d, %s",
			replicas, after.GetGeneration(), after.GetResourceVersion(), before.GetGeneration()+1, got.ResourceVersion)
	}
	if _, err := scales.Update(t.Context(), gr, stale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("update of an old scale: %v, want Conflict", err)
	}
	if _, err := scales.Get(t.Context(), gr, "nobody", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("scale of an engine that is not there: %v, want NotFound", err)
	}
}

// TestEngineScaleInvalid: the rules of the engine hold through each version's scale, in the words of Scale.
func TestEngineScaleInvalid(t *testing.T) {
	namespace := newNamespace(t, shared)
	newEngine(t, namespace, "w")
	eachEngineVersion(t, func(t *testing.T, k kindCase) {
		client := k.client(t, adminConfig(t, shared), namespace)
		for replicas, message := range map[int]string{-1: "greater than or equal to 0", 6: "must not be greater than spec.maxReplicas"} {
			patch := fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas)
			_, err := client.Patch(t.Context(), "w", types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "scale")
			if diff := cmp.Diff([]string{"spec.replicas"}, invalidFields(t, err)); diff != "" || !strings.Contains(err.Error(), message) {
				t.Errorf("%d replicas (-want +got):\n%s\n%v, want %s", replicas, diff, err, message)
			}
		}
		_, err := client.Patch(t.Context(), "w", types.MergePatchType, []byte(`{"metadata":{"uid":"other"}}`), metav1.PatchOptions{}, "scale")
		if !apierrors.IsConflict(err) {
			t.Errorf("scale of an engine with another UID: %v, want Conflict", err)
		}
	})
}

// TestEngineScaleOwners: who changes replicas through the scale owns the field, whichever version the others speak.
func TestEngineScaleOwners(t *testing.T) {
	namespace := newNamespace(t, shared)
	eachEngineVersion(t, func(t *testing.T, k kindCase) {
		name := "w-" + k.resource.Version
		client := k.client(t, adminConfig(t, shared), namespace)
		applied := k.object(t, name)
		if _, err := client.Apply(t.Context(), name, applied, metav1.ApplyOptions{FieldManager: "owner"}); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Patch(t.Context(), name, types.MergePatchType, []byte(`{"spec":{"replicas":3}}`), metav1.PatchOptions{FieldManager: "scaler"}, "scale"); err != nil {
			t.Fatal(err)
		}
		_, err := client.Apply(t.Context(), name, applied, metav1.ApplyOptions{FieldManager: "owner"})
		if !apierrors.IsConflict(err) || !strings.Contains(err.Error(), `conflict with "scaler" with subresource "scale"`) {
			t.Errorf("apply of another number: %v, want a conflict with the scaler", err)
		}
		forced, err := client.Apply(t.Context(), name, applied, metav1.ApplyOptions{FieldManager: "owner", Force: true})
		if err != nil {
			t.Fatal(err)
		}
		var managers []string
		for _, entry := range forced.GetManagedFields() {
			managers = append(managers, entry.Manager+" "+entry.APIVersion)
		}
		if diff := cmp.Diff([]string{"owner " + k.resource.GroupVersion().String()}, managers); diff != "" {
			t.Errorf("managers after the field was taken back (-want +got):\n%s", diff)
		}
	})
}

// TestEngineScaleKubectl: kubectl scale, also with its own condition.
func TestEngineScaleKubectl(t *testing.T) {
	namespace := newNamespace(t, shared)
	newEngine(t, namespace, "w")
	for _, tc := range []struct {
		args []string
		ok   bool
		want string
	}{
		{[]string{"scale", "eng", "w", "--replicas=3"}, true, "engine.fixture.example.com/w scaled"},
		{[]string{"scale", "engines.v1alpha1.fixture.example.com", "w", "--replicas=4"}, true, "scaled"},
		{[]string{"scale", "eng/w", "--current-replicas=1", "--replicas=5"}, false, "Expected replicas to be 1, was 4"},
		{[]string{"scale", "eng/w", "--replicas=9"}, false, "spec.replicas: Invalid value: 9: must not be greater than spec.maxReplicas"},
		{[]string{"get", "eng", "w", "-o", "jsonpath={.spec.replicas}"}, true, "4"},
		{[]string{"get", "eng", "w", "--subresource=scale"}, true, "NAME"},
	} {
		stdout, stderr, err := envtest.Kubectl{}.Run(t.Context(), shared, append([]string{"-n", namespace}, tc.args...)...)
		if (err == nil) != tc.ok || !strings.Contains(stdout+stderr, tc.want) {
			t.Errorf("kubectl %s: %v\n%s%s\nwant %s", strings.Join(tc.args, " "), err, stdout, stderr, tc.want)
		}
	}
}

// TestEngineAutoscaler: the HorizontalPodAutoscaler of the real kube-controller-manager reads the scale and brings it down to its
// maximum, for which it needs no metrics.
func TestEngineAutoscaler(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t, shared)
	client := engineCase.client(t, adminConfig(t, shared), namespace)
	obj := engineCase.object(t, "w")
	if err := unstructured.SetNestedField(obj.Object, int64(5), "spec", "replicas"); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Create(t.Context(), obj, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	autoscalers := adminClient(t, shared).AutoscalingV2().HorizontalPodAutoscalers(namespace)
	_, err := autoscalers.Create(t.Context(), &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: "w"},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: engineCase.resource.GroupVersion().String(), Kind: "Engine", Name: "w"},
			MaxReplicas:    3,
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// The controller looks every 15 s.
	shared.Eventually(t, "the autoscaler to scale the engine", 2*patience, func(ctx context.Context) error {
		engine, err := client.Get(ctx, "w", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if replicas, _, _ := unstructured.NestedInt64(engine.Object, "spec", "replicas"); replicas != 3 {
			hpa, err := autoscalers.Get(ctx, "w", metav1.GetOptions{})
			return errors.Join(fmt.Errorf("%d replicas, want 3; the autoscaler says %+v", replicas, hpa.Status.Conditions), err)
		}
		return nil
	})
	shared.Eventually(t, "the autoscaler to say so", patience, func(ctx context.Context) error {
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
