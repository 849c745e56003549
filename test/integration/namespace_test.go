// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestEngineHoldsNamespace: an engine with a finalizer holds the namespace that is being deleted. Meanwhile nothing new gets
// in, what is there can be changed, and a condition of the namespace says what it waits for.
func TestEngineHoldsNamespace(t *testing.T) {
	t.Parallel()
	namespaces, namespace := adminClient(t, shared).CoreV1().Namespaces(), newNamespace(t, shared)
	engines := engineCase.client(t, adminConfig(t, shared), namespace)
	for name, finalizers := range map[string][]string{"held": {hold}, "free": nil} {
		obj := engineCase.object(t, name)
		obj.SetFinalizers(finalizers)
		if _, err := engines.Create(t.Context(), obj, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := namespaces.Delete(t.Context(), namespace, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	conditions := map[corev1.NamespaceConditionType]string{
		corev1.NamespaceContentRemaining:    "Some resources are remaining: " + engineCase.resource.GroupResource().String() + " has 1 resource instances",
		corev1.NamespaceFinalizersRemaining: "Some content in the namespace has finalizers remaining: " + hold + " in 1 resource instances",
	}
	shared.Eventually(t, "the conditions of the namespace", patience, func(ctx context.Context) error {
		ns, err := namespaces.Get(ctx, namespace, metav1.GetOptions{})
		if err != nil {
			return err
		}
		got := map[corev1.NamespaceConditionType]string{}
		for _, c := range ns.Status.Conditions {
			if c.Status == corev1.ConditionTrue {
				got[c.Type] = c.Message
			}
		}
		if diff := cmp.Diff(conditions, got); diff != "" || ns.Status.Phase != corev1.NamespaceTerminating {
			return fmt.Errorf("phase %s, want Terminating; conditions that are true (-want +got):\n%s", ns.Status.Phase, diff)
		}
		return nil
	})
	if _, err := engines.Get(t.Context(), "free", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("engine without a finalizer: %v, want NotFound", err)
	}
	// The informer of our server can be a moment behind.
	shared.Eventually(t, "creates to be refused", patience, func(ctx context.Context) error {
		_, err := engines.Create(ctx, engineCase.object(t, "new"), dryRun)
		return terminating(err, namespace)
	})
	for _, patch := range []string{`{"metadata":{"labels":{"a":"b"}}}`, `{"metadata":{"finalizers":null}}`} {
		if _, err := engines.Patch(t.Context(), "held", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatalf("patch %s in a namespace that is being deleted: %v", patch, err)
		}
	}
	shared.Eventually(t, "the namespace to be gone", patience, func(ctx context.Context) error {
		ns, err := namespaces.Get(ctx, namespace, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(fmt.Errorf("still there: %+v", ns.Status), err)
	})
}

// terminating returns an error unless err refuses an object because its namespace is being deleted: controllers tell it
// from other refusals by the cause.
func terminating(err error, namespace string) error {
	cause, ok := apierrors.StatusCause(err, corev1.NamespaceTerminatingCause)
	want := metav1.StatusCause{
		Type: corev1.NamespaceTerminatingCause, Message: fmt.Sprintf("namespace %s is being terminated", namespace), Field: "metadata.namespace",
	}
	if !apierrors.IsForbidden(err) || !ok || cause != want {
		return fmt.Errorf("error %s with cause %+v, want Forbidden with cause %+v", fmt.Sprint(err), cause, want)
	}
	return nil
}

// TestEngineNamespaceUnknown: a namespace must be there before its engines; reading one that is not there finds nothing.
func TestEngineNamespaceUnknown(t *testing.T) {
	engines := engineCase.client(t, adminConfig(t, shared), "never-was")
	_, err := engines.Create(t.Context(), engineCase.object(t, "w"), metav1.CreateOptions{})
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) || status.Status().Details.Kind != "namespaces" || status.Status().Details.Name != "never-was" {
		t.Errorf("create in a namespace that is not there: %v, want NotFound of the namespace", err)
	}
	list, err := engines.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 0 {
		t.Errorf("list in a namespace that is not there: %d engines, error %v; want none", len(list.Items), err)
	}
}
