// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"example.com/extension-apiserver/pkg/envtest"
)

// graded creates a widget for each grade, named after it.
func graded(t *testing.T, client dynamic.ResourceInterface, grades ...string) {
	t.Helper()
	for _, grade := range grades {
		obj := widgetCase.object(t, strings.ToLower(grade))
		if err := unstructured.SetNestedField(obj.Object, grade, "spec", "grade"); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Create(t.Context(), obj, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWidgetFieldSelector checks that widgets can be selected by fields of the kind, with the
// field names of the request's version.
func TestWidgetFieldSelector(t *testing.T) {
	namespace := shared.NewNamespace(t)
	graded(t, widgetCase.client(t, shared.Admin(t), namespace), "Economy", "Standard", "Premium")
	for _, tc := range []struct {
		selector string
		want     []string
	}{
		{"spec.grade=Premium", []string{"premium"}},
		{"spec.grade!=Premium", []string{"economy", "standard"}},
		{"spec.model=pendulum", []string{"economy", "premium", "standard"}},
		{"spec.model=pendulum,spec.grade=Economy", []string{"economy"}},
		{"spec.grade=Premium,metadata.name=economy", nil},
		{"spec.grade=Golden", nil},
	} {
		t.Run(tc.selector, func(t *testing.T) {
			eachWidgetVersion(t, func(t *testing.T, k kindCase) {
				selector := renamed(k.resource.Version, tc.selector)
				list, err := k.client(t, shared.Admin(t), namespace).List(t.Context(),
					metav1.ListOptions{FieldSelector: selector})
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				for _, item := range list.Items {
					got = append(got, item.GetName())
				}
				slices.Sort(got)
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("selected by %s (-want +got):\n%s", selector, diff)
				}
			})
		})
	}
	// A field name of another version is rejected.
	for version, selector := range map[string]string{"v1": "spec.quality=Premium", "v1alpha1": "spec.grade=Premium"} {
		_, err := inVersion(version).client(t, shared.Admin(t), namespace).List(t.Context(),
			metav1.ListOptions{FieldSelector: selector})
		name, _, _ := strings.Cut(selector, "=")
		if want := `"` + name + `" is not a known field selector: `; !apierrors.IsBadRequest(err) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s selected by %s: %v, want BadRequest with %s", version, selector, err, want)
		}
	}
	stdout, stderr, err := envtest.Kubectl{}.Run(t.Context(), shared, "-n", namespace, "get", "wg",
		"--field-selector=spec.grade=Premium", "-o", "name")
	if err != nil || stdout != "widget.workshop.example.com/premium\n" {
		t.Errorf("kubectl get --field-selector: %q, %v\n%s", stdout, err, stderr)
	}
}

// TestWidgetFieldSelectorWatch checks that a watch reports a widget that stops matching as
// deleted, and one that starts matching as added.
func TestWidgetFieldSelectorWatch(t *testing.T) {
	client := widgetCase.client(t, shared.Admin(t), shared.NewNamespace(t))
	graded(t, client, "Standard")
	events, err := client.Watch(t.Context(), metav1.ListOptions{FieldSelector: "spec.grade=Premium"})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	grade := func(value string) *unstructured.Unstructured {
		t.Helper()
		obj, err := client.Patch(t.Context(), "standard", types.MergePatchType,
			[]byte(`{"spec":{"grade":"`+value+`"}}`), metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return obj
	}
	entered := grade("Premium")
	expect(t, events, watch.Added, entered)
	// The event carries the last state that matched, with the resource version of the change.
	left := entered.DeepCopy()
	left.SetResourceVersion(grade("Economy").GetResourceVersion())
	expect(t, events, watch.Deleted, left)
	expect(t, events, watch.Added, grade("Premium"))
	last := grade("Premium")
	if err := client.Delete(t.Context(), "standard", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	select {
	case event := <-events.ResultChan():
		got := event.Object.(*unstructured.Unstructured)
		if event.Type != watch.Deleted || got.GetUID() != last.GetUID() ||
			got.GetResourceVersion() == last.GetResourceVersion() {
			t.Errorf("got %s at %s, want DELETED at a later version than %s", event.Type, got.GetResourceVersion(),
				last.GetResourceVersion())
		}
	case <-t.Context().Done():
	}
}

// TestWidgetFieldSelectorDeletion checks that a delete of a collection by a field of the kind
// deletes only the selected objects.
func TestWidgetFieldSelectorDeletion(t *testing.T) {
	client := widgetCase.client(t, shared.Admin(t), shared.NewNamespace(t))
	graded(t, client, "Economy", "Standard", "Premium")
	if err := client.DeleteCollection(t.Context(), metav1.DeleteOptions{},
		metav1.ListOptions{FieldSelector: "spec.grade=Standard"}); err != nil {
		t.Fatal(err)
	}
	list, err := client.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, item := range list.Items {
		got = append(got, item.GetName())
	}
	if diff := cmp.Diff([]string{"economy", "premium"}, got); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
}
