// SPDX-License-Identifier: Apache-2.0

package objectsizes

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	storagefactory "k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	"k8s.io/client-go/tools/cache"

	"example.com/extension-apiserver/sample/apis/workshop"
	"example.com/extension-apiserver/sample/apis/workshop/install"
	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
)

var widgets = schema.GroupResource{Group: "example.com", Resource: "widgets"}

// registry stores resources below /registry/GROUP/RESOURCE.
type registry struct{}

func (registry) GetRESTOptions(of schema.GroupResource, _ runtime.Object) (generic.RESTOptions, error) {
	config := storagebackend.Config{Prefix: "/registry/" + of.Group}
	return generic.RESTOptions{StorageConfig: config.ForResource(of), ResourcePrefix: of.Resource, Decorator: decorate},
		nil
}

// existing is a storage in which one object exists.
type existing struct {
	storage.Interface
	key string
}

func (e existing) Get(_ context.Context, key string, _ storage.GetOptions, _ runtime.Object) error {
	if key != e.key {
		return storage.NewKeyNotFoundError(key, 0)
	}
	return nil
}

func decorate(*storagebackend.ConfigForResource, string, func(runtime.Object) (string, error), func() runtime.Object,
	func() runtime.Object, storage.AttrFunc, storage.IndexerFuncs, *cache.Indexers) (storage.Interface,
	storagefactory.DestroyFunc, error) {
	return existing{key: "/widgets/a/w0"}, func() {}, nil
}

// stored returns Sizes, and the transformer of the storage of widgets.
func stored(t *testing.T) (*Sizes, value.Transformer) {
	t.Helper()
	sizes := New()
	options, err := sizes.Observe(registry{}, nil).GetRESTOptions(widgets, nil)
	if err != nil {
		t.Fatal(err)
	}
	newFunc := func() runtime.Object { return nil }
	if _, _, err := options.Decorator(options.StorageConfig, "widgets", nil, newFunc, newFunc, nil, nil,
		nil); err != nil {
		t.Fatal(err)
	}
	return sizes, options.StorageConfig.Transformer
}

func write(t *testing.T, storage value.Transformer, key string, size int) {
	t.Helper()
	if _, err := storage.TransformToStorage(t.Context(), bytes.Repeat([]byte("x"), size),
		value.DefaultContext(key)); err != nil {
		t.Fatal(err)
	}
}

func TestSizes(t *testing.T) {
	sizes, storage := stored(t)
	want := func(namespace, name string, object, largest int64) {
		t.Helper()
		if got := sizes.Object(widgets, namespace, name); got != object {
			t.Errorf("%s/%s: got %d, want %d", namespace, name, got, object)
		}
		if got := sizes.Largest(widgets, ""); got != largest {
			t.Errorf("the largest: got %d, want %d", got, largest)
		}
	}
	want("a", "b", 0, 0)
	write(t, storage, "/registry/example.com/widgets/a/b", 1000)
	want("a", "b", 1000, 1000)
	write(t, storage, "/registry/example.com/widgets/a/large", 500_000)
	want("a", "large", 500_000, 500_000)
	want("a", "b", small, 500_000)
	write(t, storage, "/registry/example.com/widgets/a/large", 1000)
	want("a", "large", 500_000, 500_000) // the largest size so far
	if _, _, err := storage.TransformFromStorage(t.Context(), bytes.Repeat([]byte("x"), 600_000),
		value.DefaultContext("/registry/example.com/widgets/clusterwide")); err != nil {
		t.Fatal(err)
	}
	want("", "clusterwide", 600_000, 600_000)
	for namespace, largest := range map[string]int64{"a": 500_000, "quiet": small} {
		if got := sizes.Largest(widgets, namespace); got != largest {
			t.Errorf("the largest in namespace %s: got %d, want %d", namespace, got, largest)
		}
	}
	write(t, storage, "/elsewhere/b", 100_000) // it could be any object
	want("a", "b", 100_000, 600_000)

	other := schema.GroupResource{Group: "example.com", Resource: "others"}
	if !sizes.Known(widgets) || sizes.Known(other) || sizes.Object(other, "a", "large") != 0 ||
		sizes.Largest(other, "") != 0 {
		t.Error("a resource that is not stored has sizes, or one that is stored has none")
	}
}

// TestManyObjects checks that no object counts for less than its size when there are more objects
// than can be tracked.
func TestManyObjects(t *testing.T) {
	sizes, storage := stored(t)
	for i := range 2 * maxTracked {
		write(t, storage, fmt.Sprintf("/registry/example.com/widgets/a/w%d", i), small+1+i)
	}
	for i := range 2 * maxTracked {
		got, want := sizes.Object(widgets, "a", fmt.Sprintf("w%d", i)), int64(small+1+max(i, maxTracked-1))
		if got != want {
			t.Fatalf("w%d: got %d, want %d", i, got, want)
		}
	}
	if got := len(sizes.resources[widgets].objects); got != maxTracked {
		t.Errorf("%d objects are tracked, want %d", got, maxTracked)
	}
}

// TestLarge checks that the sums cover a namespace or all namespaces, without deleted objects.
func TestLarge(t *testing.T) {
	sizes, storage := stored(t)
	for i := range 3 {
		write(t, storage, fmt.Sprintf("/registry/example.com/widgets/a/w%d", i), 100_000)
	}
	write(t, storage, "/registry/example.com/widgets/ab/w0", 200_000)
	write(t, storage, "/registry/example.com/widgets/a/small", 10_000)
	want := func(namespace string, want int64) {
		t.Helper()
		if json, stored, growth := sizes.Large(widgets, namespace); json != want || stored != want || growth != 0 {
			t.Errorf("%q: got %d, %d and %d, want %d twice and 0", namespace, json, stored, growth, want)
		}
	}
	want("", 500_000)
	want("a", 300_000)
	want("b", 0)
	sizes.Forget(t.Context(), widgets)
	want("", 100_000)
	want("ab", 0)
	write(t, storage, "/registry/example.com/widgets/ab/w0", 200_000)
	sizes.Forget(t.Context(), widgets) // too soon to look again
	want("ab", 200_000)
}

// TestSmallObjectsWithLongJSON checks that Large counts small objects if their JSON is much longer
// than the stored data.
func TestSmallObjectsWithLongJSON(t *testing.T) {
	sizes, storage := stored(t)
	for i := range maxTracked + 1 {
		if i == maxTracked {
			if json, stored, growth := sizes.Large(widgets, ""); json != 6000*maxTracked || stored != 1000*maxTracked ||
				growth != 0 {
				t.Errorf("sizes of all objects: got %d as JSON, %d stored and growth %d, want %d, %d and 0", json, stored,
					growth, 6000*maxTracked, 1000*maxTracked)
			}
		}
		if _, err := storage.TransformToStorage(t.Context(), bytes.Repeat([]byte("<"), 1000),
			value.DefaultContext(fmt.Sprintf("/registry/example.com/widgets/a/w%d", i))); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, growth := sizes.Large(widgets, ""); growth != 5000 {
		t.Errorf("growth of the object that is not tracked: got %d, want 5000", growth)
	}
	if got := sizes.Most(widgets, "a", 10); got != 60_000 {
		t.Errorf("size of ten objects: got %d, want 60000", got)
	}
	if got := sizes.Most(widgets, "b", 10); got != 0 {
		t.Errorf("size of objects in another namespace: got %d, want 0", got)
	}
}

// TestJSONLength checks that no object is longer as JSON than the estimate from its stored data,
// and that the estimate for text is not much too long.
func TestJSONLength(t *testing.T) {
	conditions := func(n int, c metav1.Condition) []metav1.Condition { return slices.Repeat([]metav1.Condition{c}, n) }
	for name, tc := range map[string]struct {
		object v1.Widget
		most   float64 // limit of the estimate, as a multiple of the length
	}{
		"text": {v1.Widget{ObjectMeta: metav1.ObjectMeta{Name: strings.Repeat("lorem ipsum ", 10_000)}},
			1.1},
		"lines": {v1.Widget{ObjectMeta: metav1.ObjectMeta{Name: strings.Repeat(
			"a line of text of some length\n", 10_000)}}, 2},
		"escapes":  {v1.Widget{ObjectMeta: metav1.ObjectMeta{Name: strings.Repeat("<>&\"\\", 10_000)}}, 1.1},
		"unicode":  {v1.Widget{ObjectMeta: metav1.ObjectMeta{Name: strings.Repeat("世界\u2028é", 10_000)}}, 1.1},
		"control":  {v1.Widget{ObjectMeta: metav1.ObjectMeta{Name: strings.Repeat("\x01\t", 10_000)}}, 6},
		"no UTF-8": {v1.Widget{ObjectMeta: metav1.ObjectMeta{Name: strings.Repeat("\xff\xc3", 10_000)}}, 1.1},
		"parts":    {v1.Widget{Spec: v1.WidgetSpec{Parts: make([]v1.WidgetPart, 9999)}}, 10},
		"conditions": {v1.Widget{Status: v1.WidgetStatus{Conditions: conditions(9999, metav1.Condition{})}},
			10},
		"finalizers": {v1.Widget{ObjectMeta: metav1.ObjectMeta{Finalizers: make([]string, 9999)}}, 20},
		"numbers": {v1.Widget{Status: v1.WidgetStatus{Conditions: conditions(9999, metav1.Condition{
			ObservedGeneration: math.MaxInt64, LastTransitionTime: metav1.Unix(1<<33, 0)})}}, 10},
	} {
		for _, mediaType := range []string{runtime.ContentTypeProtobuf, runtime.ContentTypeJSON} {
			data := encode(t, mediaType, &tc.object)
			want := int64(len(encode(t, runtime.ContentTypeJSON, &tc.object)))
			got := JSONLength(data)
			if got < want || float64(got) > tc.most*float64(want) {
				t.Errorf("%s as %s: got %d, want %d, or up to %.1f times as much", name, mediaType, got, want, tc.most)
			}
		}
	}
}

func encode(t *testing.T, mediaType string, w *v1.Widget) []byte {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := install.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	codecs := serializer.NewCodecFactory(scheme)
	info, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), mediaType)
	if !ok {
		t.Fatalf("no serializer for %s", mediaType)
	}
	data, err := runtime.Encode(codecs.EncoderForVersion(info.Serializer,
		schema.GroupVersion{Group: workshop.GroupName, Version: "v1"}), w)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestWriteDelay checks that a user who stores many bytes of large objects has to wait, and that
// other users do not.
func TestWriteDelay(t *testing.T) {
	sizes := New()
	sizes.LimitWrites(5<<20, 3<<20)
	of := schema.GroupResource{Group: "g", Resource: "rs"}
	store := func(name string, size int) {
		t.Helper()
		ctx := genericapirequest.WithUser(t.Context(), &user.DefaultInfo{Name: name})
		data := []byte(`{"a":"` + strings.Repeat("x", size) + `"}`)
		written := transformer{identity.NewEncryptCheckTransformer(), sizes.resource(of, "/registry/g/rs/", nil), sizes}
		if _, err := written.TransformToStorage(ctx, data, value.DefaultContext("/registry/g/rs/n/a")); err != nil {
			t.Fatal(err)
		}
	}
	check := func(name string, waits bool) {
		t.Helper()
		if delay := sizes.WriteDelay(of, name); (delay > 0) != waits || delay > 75*time.Second {
			t.Errorf("%s: got a delay of %s, want one: %t", name, delay, waits)
		}
	}
	check("a", false)
	for range 1_000 {
		store("a", 60<<10)
	}
	check("a", false)
	for range 4 {
		store("a", 1<<20)
	}
	check("a", true)
	check("b", false)
	store("b", 2<<20)
	check("b", true) // all users together have stored too much
	if delay := sizes.WriteDelay(schema.GroupResource{Group: "g", Resource: "others"}, "a"); delay > 0 {
		t.Errorf("another resource: got a delay of %s, want none", delay)
	}
}
