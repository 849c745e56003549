// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	clientfeatures "k8s.io/client-go/features"
	clientfeaturestesting "k8s.io/client-go/features/testing"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"example.com/extension-apiserver/pkg/envtest"
)

// informers creates the kinds of informers that clients use: of whole objects, and of metadata
// alone (kube-controller-manager).
var informers = map[string]func(*rest.Config, string) (cache.SharedIndexInformer, error){
	"dynamic": func(config *rest.Config, namespace string) (cache.SharedIndexInformer, error) {
		client, err := dynamic.NewForConfig(config)
		if err != nil {
			return nil, err
		}
		return dynamicinformer.NewFilteredDynamicSharedInformerFactory(client, 0, namespace, nil).ForResource(
			widgetCase.resource).Informer(), nil
	},
	"metadata": func(config *rest.Config, namespace string) (cache.SharedIndexInformer, error) {
		client, err := metadata.NewForConfig(config)
		if err != nil {
			return nil, err
		}
		return metadatainformer.NewFilteredSharedInformerFactory(client, 0, namespace, nil).ForResource(
			widgetCase.resource).Informer(), nil
	},
}

// observer is a running informer with its events and its traffic.
type observer struct {
	cache.SharedIndexInformer
	name    string
	events  chan string
	traffic *traffic
}

// observe runs an informer of that kind until the test ends, with the client's WatchList on or
// off, and waits until it has synced.
func observe(t *testing.T, e *envtest.Environment, kind string, watchList bool, namespace string) *observer {
	t.Helper()
	// The reflector reads the feature gate once, when it starts.
	clientfeaturestesting.SetFeatureDuringTest(t, clientfeatures.WatchListClient, watchList)
	o := &observer{name: fmt.Sprintf("%s informer, WatchList %t", kind, watchList), events: make(chan string, 100),
		traffic: &traffic{}}
	config := e.Admin(t)
	config.Wrap(o.traffic.wrap)
	var err error
	if o.SharedIndexInformer, err = informers[kind](config, namespace); err != nil {
		t.Fatal(err)
	}
	if _, err := o.AddEventHandler(o); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); o.RunWithContext(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	synced, stop := context.WithTimeout(ctx, envtest.WaitTimeout)
	defer stop()
	if !cache.WaitForCacheSync(synced.Done(), o.HasSynced) {
		t.Fatalf("%s: not synced within %s; requests: %q", o.name, envtest.WaitTimeout, o.traffic.list())
	}
	return o
}

// OnAdd records an event with the name of its object, as OnUpdate and OnDelete do.
func (o *observer) OnAdd(obj any, initial bool) {
	what := "add"
	if initial {
		what = "initial"
	}
	o.events <- what + " " + obj.(metav1.Object).GetName()
}

// OnUpdate ignores unchanged objects, which a relist repeats.
func (o *observer) OnUpdate(old, obj any) {
	if old.(metav1.Object).GetResourceVersion() != obj.(metav1.Object).GetResourceVersion() {
		o.events <- "update " + obj.(metav1.Object).GetName()
	}
}

// OnDelete distinguishes an observed deletion from one that a relist revealed.
func (o *observer) OnDelete(obj any) {
	if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		o.events <- "missed the deletion of " + unknown.Key
		return
	}
	o.events <- "delete " + obj.(metav1.Object).GetName()
}

// expect waits for exactly these events, in any order.
func (o *observer) expect(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	deadline := time.After(envtest.WaitTimeout)
	for len(got) < len(want) {
		select {
		case event := <-o.events:
			got = append(got, event)
		case <-deadline:
			t.Fatalf("%s: within %s got %q, want %q; requests: %q", o.name, envtest.WaitTimeout, got, want,
				o.traffic.list())
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("%s: events (-want +got):\n%s", o.name, diff)
	}
}

// TestWidgetInformers checks that informers of every kind deliver the existing objects and each
// change. They use the protocol that client-go prefers (WatchList, KEP-3157: a watch that begins
// with the objects) and the previous one.
func TestWidgetInformers(t *testing.T) {
	for kind := range informers {
		for _, watchList := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, WatchList %t", kind, watchList), func(t *testing.T) {
				namespace := shared.NewNamespace(t)
				client := widgetCase.client(t, shared.Admin(t), namespace)
				if _, err := client.Create(t.Context(), widgetCase.object(t, "a"), metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
				o := observe(t, shared, kind, watchList, namespace)
				o.expect(t, "initial a")
				if _, err := client.Create(t.Context(), widgetCase.object(t, "b"), metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
				o.expect(t, "add b")
				patched, err := client.Patch(t.Context(), "b", types.MergePatchType, []byte(widgetCase.change),
					metav1.PatchOptions{})
				if err != nil {
					t.Fatal(err)
				}
				o.expect(t, "update b")
				if err := client.Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
				o.expect(t, "delete a")

				if diff := cmp.Diff([]string{namespace + "/b"}, o.GetStore().ListKeys()); diff != "" {
					t.Errorf("objects in the store (-want +got):\n%s", diff)
				}
				cached, _, err := o.GetStore().GetByKey(namespace + "/b")
				if err != nil {
					t.Fatal(err)
				}
				got, err := meta.Accessor(cached)
				if err != nil || got.GetResourceVersion() != patched.GetResourceVersion() ||
					got.GetUID() != patched.GetUID() || got.GetGeneration() != 2 {
					t.Errorf("b in the store: %v (%v), want it as the patch returned it", cached, err)
				}
				want := []string{"list", "watch"}
				if watchList {
					want = []string{"watch with the list"}
				}
				if diff := cmp.Diff(want, o.traffic.list()); diff != "" {
					t.Errorf("requests (-want +got):\n%s", diff)
				}
			})
		}
	}
}
