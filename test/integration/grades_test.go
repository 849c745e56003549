// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"example.com/extension-apiserver/pkg/envtest"
	"example.com/extension-apiserver/sample/grades"
)

// TestWidgetGrades checks that an admission plugin restricts the grades of Widgets to those that
// their Namespace permits.
func TestWidgetGrades(t *testing.T) {
	t.Parallel()
	namespace := shared.NewNamespace(t)
	namespaces := shared.Client(t).CoreV1().Namespaces()
	permit := func(list string) {
		t.Helper()
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, grades.Annotation, list)
		if _, err := namespaces.Patch(t.Context(), namespace, types.MergePatchType, []byte(patch),
			metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	client := widgetCase.client(t, shared.Admin(t), namespace)
	create := func(name, grade string, options metav1.CreateOptions) error {
		widget := widgetCase.object(t, name)
		widget.Object["spec"] = map[string]any{"model": "m", "grade": grade}
		_, err := client.Create(t.Context(), widget, options)
		return err
	}
	// deny waits for the server to read the annotation.
	deny := func(grade string) {
		t.Helper()
		shared.Eventually(t, "Widgets with the grade "+grade+" to be rejected", envtest.WaitTimeout,
			func(context.Context) error {
				if err := create("denied", grade, dryRun); !apierrors.IsForbidden(err) {
					return fmt.Errorf("got %w, want it forbidden", err)
				}
				return nil
			})
	}

	permit("Premium")
	deny("Standard")
	if err := create("premium", "Premium", metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	permit("Standard,Economy")
	deny("Premium")
	for _, c := range []struct {
		name, patch string
		subresource []string
		rejected    bool
	}{
		{name: "another field", patch: `{"spec":{"replicas":2}}`},
		{name: "status", patch: `{"status":{"replicas":1}}`, subresource: []string{"status"}},
		{name: "to a grade that is permitted", patch: `{"spec":{"grade":"Economy"}}`},
		{name: "back", patch: `{"spec":{"grade":"Premium"}}`, rejected: true},
	} {
		if _, err := client.Patch(t.Context(), "premium", types.MergePatchType, []byte(c.patch), metav1.PatchOptions{},
			c.subresource...); apierrors.IsForbidden(err) != c.rejected || !c.rejected && err != nil {
			t.Errorf("patch %s: got %v, want it rejected: %t", c.name, err, c.rejected)
		}
	}
}
