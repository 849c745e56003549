// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"slices"
	"strings"
	"testing"
	"time"

	"example.com/extension-apiserver/pkg/envtest"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/restmapper"
)

// TestWidgetByMetadata checks that a client without knowledge of the kind can read, watch, patch
// and delete by metadata alone, as the garbage collector and the namespace controller do.
func TestWidgetByMetadata(t *testing.T) {
	namespace := shared.NewNamespace(t)
	created, err := widgetCase.client(t, shared.Admin(t), namespace).Create(t.Context(), widgetCase.object(t, "w"),
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	client, err := metadata.NewForConfig(shared.Admin(t))
	if err != nil {
		t.Fatal(err)
	}
	widgets := client.Resource(widgetCase.resource).Namespace(namespace)
	got, err := widgets.Get(t.Context(), "w", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got.UID != created.GetUID() || got.ResourceVersion != created.GetResourceVersion() {
		t.Errorf("get: %+v, want the metadata of %v", got, created)
	}
	list, err := widgets.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 || list.Items[0].UID != created.GetUID() || list.ResourceVersion == "" {
		t.Fatalf("list: %+v, error %v; want one", list, err)
	}
	events, err := widgets.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()

	patched, err := widgets.Patch(t.Context(), "w", types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"test":"x"}}}`), metav1.PatchOptions{})
	if err != nil || patched.Labels["test"] != "x" {
		t.Fatalf("patch of a label: %+v, error %v", patched, err)
	}
	if seen := nextTyped(t, events,
		watch.Modified).(*metav1.PartialObjectMetadata); seen.ResourceVersion != patched.ResourceVersion ||
		seen.Labels["test"] != "x" {
		t.Errorf("watch: %+v, want what the patch returned", seen)
	}
	if err := widgets.DeleteCollection(t.Context(), metav1.DeleteOptions{},
		metav1.ListOptions{LabelSelector: "test=x"}); err != nil {
		t.Fatal(err)
	}
	if seen := nextTyped(t, events, watch.Deleted).(*metav1.PartialObjectMetadata); seen.UID != created.GetUID() {
		t.Errorf("watch: deletion of %s, want %s", seen.UID, created.GetUID())
	}
	if _, err := widgets.Get(t.Context(), "w", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("get after the deletion: %v, want NotFound", err)
	}
}

// nextTyped waits for the next event and returns its object.
func nextTyped(t *testing.T, events watch.Interface, want watch.EventType) runtime.Object {
	t.Helper()
	select {
	case event := <-events.ResultChan():
		if event.Type != want {
			t.Fatalf("watch: %s %v, want %s", event.Type, event.Object, want)
		}
		return event.Object
	case <-time.After(envtest.WaitTimeout):
		t.Fatalf("watch: nothing within %s, want %s", envtest.WaitTimeout, want)
	}
	return nil
}

// TestWidgetMapper checks that clients find the kind in discovery by each of its names, and the
// kinds of its category.
func TestWidgetMapper(t *testing.T) {
	cached := memory.NewMemCacheClient(shared.Client(t).Discovery())
	deferred := restmapper.NewDeferredDiscoveryRESTMapper(cached)
	mapper := restmapper.NewShortcutExpander(deferred, cached,
		func(warning string) { t.Errorf("warning: %s", warning) })
	kind := widgetCase.resource.GroupVersion().WithKind("Widget")
	for _, name := range []string{"widgets", "widget", "wg"} {
		for _, group := range []string{"", kind.Group} {
			got, err := mapper.KindFor(schema.GroupVersionResource{Group: group, Resource: name})
			if err != nil || got != kind {
				t.Errorf("kind of %s in group %q: %s, error %v; want %s", name, group, got, err, kind)
			}
		}
	}
	mapping, err := mapper.RESTMapping(kind.GroupKind())
	if err != nil || mapping.Resource != widgetCase.resource || mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		t.Errorf("mapping of %s: %+v, error %v; want %s in namespaces", kind, mapping, err, widgetCase.resource)
	}
	if singular, err := mapper.ResourceSingularizer("widgets"); err != nil || singular != "widget" {
		t.Errorf("singular of widgets: %q, error %v; want widget", singular, err)
	}
	if _, err := mapper.KindFor(schema.GroupVersionResource{Resource: "wgs"}); !meta.IsNoMatchError(err) {
		t.Errorf("kind of wgs: %v, want no match", err)
	}
	category, found := restmapper.NewDiscoveryCategoryExpander(cached).Expand("workshop")
	// The expander returns each resource once per version.
	slices.SortFunc(category, func(a, b schema.GroupResource) int { return strings.Compare(a.String(), b.String()) })
	want := []schema.GroupResource{gadgetCase.resource.GroupResource(),
		gadgetCase.resource.GroupVersion().WithResource("parts").GroupResource(), widgetCase.resource.GroupResource()}
	if diff := cmp.Diff(want, slices.Compact(category)); diff != "" || !found {
		t.Errorf("category workshop, found %t (-want +got):\n%s", found, diff)
	}
}
