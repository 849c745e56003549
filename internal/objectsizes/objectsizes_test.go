// SPDX-License-Identifier: Apache-2.0

package objectsizes

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/value"
)

var widgets = schema.GroupResource{Group: "example.com", Resource: "widgets"}

// registry stores resources below /registry/GROUP/RESOURCE.
type registry struct{}

func (registry) GetRESTOptions(of schema.GroupResource, _ runtime.Object) (generic.RESTOptions, error) {
	config := storagebackend.Config{Prefix: "/registry/" + of.Group}
	return generic.RESTOptions{StorageConfig: config.ForResource(of), ResourcePrefix: of.Resource}, nil
}

// stored returns Sizes, and the transformer of the storage of widgets.
func stored(t *testing.T) (*Sizes, value.Transformer) {
	t.Helper()
	sizes := New()
	options, err := sizes.Observe(registry{}).GetRESTOptions(widgets, nil)
	if err != nil {
		t.Fatal(err)
	}
	return sizes, options.StorageConfig.Transformer
}

func write(t *testing.T, storage value.Transformer, key string, size int) {
	t.Helper()
	if _, err := storage.TransformToStorage(t.Context(), make([]byte, size), value.DefaultContext(key)); err != nil {
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
		if got := sizes.Largest(widgets); got != largest {
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
	want("a", "large", 500_000, 500_000) // it has been
	if _, _, err := storage.TransformFromStorage(t.Context(), make([]byte, 600_000), value.DefaultContext("/registry/example.com/widgets/clusterwide")); err != nil {
		t.Fatal(err)
	}
	want("", "clusterwide", 600_000, 600_000)
	write(t, storage, "/elsewhere/b", 100_000) // it could be any object
	want("a", "b", 100_000, 600_000)

	other := schema.GroupResource{Group: "example.com", Resource: "others"}
	if !sizes.Known(widgets) || sizes.Known(other) || sizes.Object(other, "a", "large") != 0 || sizes.Largest(other) != 0 {
		t.Error("a resource that is not stored has sizes, or one that is stored has none")
	}
}

// TestRemembered: no object counts for less than its size when there are more than are remembered.
func TestRemembered(t *testing.T) {
	sizes, storage := stored(t)
	for i := range 2 * remembered {
		write(t, storage, fmt.Sprintf("/registry/example.com/widgets/a/w%d", i), small+1+i)
	}
	for i := range 2 * remembered {
		got, want := sizes.Object(widgets, "a", fmt.Sprintf("w%d", i)), int64(small+1+max(i, remembered-1))
		if got != want {
			t.Fatalf("w%d: got %d, want %d", i, got, want)
		}
	}
	if got := len(sizes.resources[widgets].objects); got != remembered {
		t.Errorf("%d objects are remembered, want %d", got, remembered)
	}
}
