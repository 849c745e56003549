// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"slices"
	"testing"
	"time"

	"example.com/extension-apiserver/pkg/envtest"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	v1 "example.com/extension-apiserver/test/fixture/api/v1"
)

// TestEngineByMetadata: a client that knows no kind reads, watches, patches and deletes by metadata alone, as the
// garbage collector and the namespace controller do.
func TestEngineByMetadata(t *testing.T) {
	namespace := shared.NewNamespace(t)
	created, err := engineCase.client(t, shared.Admin(t), namespace).Create(t.Context(), engineCase.object(t, "w"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	client, err := metadata.NewForConfig(shared.Admin(t))
	if err != nil {
		t.Fatal(err)
	}
	engines := client.Resource(engineCase.resource).Namespace(namespace)
	got, err := engines.Get(t.Context(), "w", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got.UID != created.GetUID() || got.ResourceVersion != created.GetResourceVersion() {
		t.Errorf("get: %+v, want the metadata of %v", got, created)
	}
	list, err := engines.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 || list.Items[0].UID != created.GetUID() || list.ResourceVersion == "" {
		t.Fatalf("list: %+v, error %v; want one", list, err)
	}
	events, err := engines.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()

	patched, err := engines.Patch(t.Context(), "w", types.MergePatchType, []byte(`{"metadata":{"labels":{"test":"x"}}}`), metav1.PatchOptions{})
	if err != nil || patched.Labels["test"] != "x" {
		t.Fatalf("patch of a label: %+v, error %v", patched, err)
	}
	if seen := nextTyped(t, events, watch.Modified).(*metav1.PartialObjectMetadata); seen.ResourceVersion != patched.ResourceVersion || seen.Labels["test"] != "x" {
		t.Errorf("watch: %+v, want what the patch returned", seen)
	}
	if err := engines.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "test=x"}); err != nil {
		t.Fatal(err)
	}
	if seen := nextTyped(t, events, watch.Deleted).(*metav1.PartialObjectMetadata); seen.UID != created.GetUID() {
		t.Errorf("watch: deletion of %s, want %s", seen.UID, created.GetUID())
	}
	if _, err := engines.Get(t.Context(), "w", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
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
	case <-time.After(envtest.Patience):
		t.Fatalf("watch: nothing within %s, want %s", envtest.Patience, want)
	}
	return nil
}

// TestEngineMapper: from discovery, clients find the kind by each of its names, and the kinds of its category.
func TestEngineMapper(t *testing.T) {
	cached := memory.NewMemCacheClient(shared.Client(t).Discovery())
	deferred := restmapper.NewDeferredDiscoveryRESTMapper(cached)
	mapper := restmapper.NewShortcutExpander(deferred, cached, func(warning string) { t.Errorf("warning: %s", warning) })
	kind := engineCase.resource.GroupVersion().WithKind("Engine")
	for _, name := range []string{"engines", "engine", "eng"} {
		for _, group := range []string{"", kind.Group} {
			got, err := mapper.KindFor(schema.GroupVersionResource{Group: group, Resource: name})
			if err != nil || got != kind {
				t.Errorf("kind of %s in group %q: %s, error %v; want %s", name, group, got, err, kind)
			}
		}
	}
	mapping, err := mapper.RESTMapping(kind.GroupKind())
	if err != nil || mapping.Resource != engineCase.resource || mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		t.Errorf("mapping of %s: %+v, error %v; want %s in namespaces", kind, mapping, err, engineCase.resource)
	}
	if singular, err := mapper.ResourceSingularizer("engines"); err != nil || singular != "engine" {
		t.Errorf("singular of engines: %q, error %v; want engine", singular, err)
	}
	if _, err := mapper.KindFor(schema.GroupVersionResource{Resource: "engs"}); !meta.IsNoMatchError(err) {
		t.Errorf("kind of engs: %v, want no match", err)
	}
	category, found := restmapper.NewDiscoveryCategoryExpander(cached).Expand("fixture")
	// Once for each version.
	if diff := cmp.Diff([]schema.GroupResource{engineCase.resource.GroupResource()}, slices.Compact(category)); diff != "" || !found {
		t.Errorf("category fixture, found %t (-want +got):\n%s", found, diff)
	}
}

// TestEngineTyped: a typed client, made as the generated ones are, works in JSON and in protobuf.
func TestEngineTyped(t *testing.T) {
	for _, contentType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		t.Run(contentType, func(t *testing.T) {
			scheme := runtime.NewScheme()
			utilruntime.Must(v1.AddToScheme(scheme))
			config := rest.CopyConfig(shared.Admin(t))
			config.ContentType, config.AcceptContentTypes = contentType, contentType
			config.APIPath, config.GroupVersion = "/apis", &v1.SchemeGroupVersion
			config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
			client, err := rest.RESTClientFor(config)
			if err != nil {
				t.Fatal(err)
			}
			typed(t, gentype.NewClientWithList("engines", client, runtime.NewParameterCodec(scheme), shared.NewNamespace(t),
				func() *v1.Engine { return &v1.Engine{} }, func() *v1.EngineList { return &v1.EngineList{} },
				gentype.PrefersProtobuf[*v1.Engine]()))
		})
	}
}

func typed(t *testing.T, engines *gentype.ClientWithList[*v1.Engine, *v1.EngineList]) {
	t.Helper()
	engine := &v1.Engine{ObjectMeta: metav1.ObjectMeta{Name: "w"}, Spec: v1.EngineSpec{Model: "m", Parts: []v1.EnginePart{{Name: "p"}}}}
	created, err := engines.Create(t.Context(), engine, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create: %v", err)
	}
	want := v1.EngineSpec{
		Model: "m", Grade: v1.EngineGradeStandard, Replicas: new(int32(1)), Parts: []v1.EnginePart{{Name: "p", Quantity: new(int32(1))}},
	}
	if diff := cmp.Diff(want, created.Spec); diff != "" {
		t.Errorf("created, with the defaults (-want +got):\n%s", diff)
	}
	events, err := engines.Watch(t.Context(), metav1.ListOptions{ResourceVersion: created.ResourceVersion, FieldSelector: "metadata.name=w"})
	if err != nil {
		t.Fatalf("watch: %v", err)
	}
	defer events.Stop()
	created.Spec.Replicas = new(int32(3))
	updated, err := engines.Update(t.Context(), created, metav1.UpdateOptions{})
	if err != nil {
		t.Fatalf("update: %v", err)
	}
	if diff := cmp.Diff(updated, nextTyped(t, events, watch.Modified)); diff != "" {
		t.Errorf("watch (-updated +seen):\n%s", diff)
	}
	updated.Status = v1.EngineStatus{Replicas: 3, ReadyReplicas: 2, Conditions: []metav1.Condition{{
		Type: "Ready", Status: metav1.ConditionFalse, Reason: "Test", LastTransitionTime: metav1.Now().Rfc3339Copy(),
	}}}
	got, err := engines.UpdateStatus(t.Context(), updated, metav1.UpdateOptions{})
	if err != nil {
		t.Fatalf("update of the status: %v", err)
	}
	if diff := cmp.Diff(updated.Status, got.Status); diff != "" {
		t.Errorf("status (-sent +got):\n%s", diff)
	}
	list, err := engines.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 {
		t.Fatalf("list: %+v, error %v; want 1", list, err)
	}
	got.TypeMeta = metav1.TypeMeta{}
	list.Items[0].TypeMeta = metav1.TypeMeta{}
	if diff := cmp.Diff(*got, list.Items[0]); diff != "" {
		t.Errorf("listed (-want +got):\n%s", diff)
	}
	if err := engines.Delete(t.Context(), "w", metav1.DeleteOptions{}); err != nil {
		t.Errorf("delete: %v", err)
	}
	if _, err := engines.Get(t.Context(), "w", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("get after the deletion: %v, want NotFound", err)
	}
}
