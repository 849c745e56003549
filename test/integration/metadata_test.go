// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
)

const (
	asMetadata     = ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	asMetadataList = ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
)

// TestEngineMetadata: of each object its metadata can be had alone, in every form. The garbage collector and the quota
// controller read all kinds so; one that cannot be read stops them for the whole cluster.
func TestEngineMetadata(t *testing.T) {
	server, namespace := aggregator(t, shared), newNamespace(t, shared)
	path := newEngines(t, namespace, "a", "b")
	client := engineCase.client(t, adminConfig(t, shared), namespace)
	for _, f := range forms {
		t.Run(f.name, func(t *testing.T) {
			whole := forms[0].decode(t, server.get(t, path, forms[0].accept("")))
			var want []any
			for _, obj := range listedItems(whole) {
				want = append(want, map[string]any{"metadata": obj.(map[string]any)["metadata"]})
			}
			list := f.decode(t, server.get(t, path, f.accept(asMetadataList)))
			// The store's version may be a later one already: the namespaces of other tests are emptied meanwhile.
			order, err := resourceversion.CompareResourceVersion(versionOf(list), versionOf(whole))
			if err != nil || order < 0 {
				t.Errorf("list at version %q (%v), want %s or later", versionOf(list), err, versionOf(whole))
			}
			if diff := cmp.Diff(want, listedItems(list)); diff != "" || list["kind"] != "PartialObjectMetadataList" {
				t.Errorf("list: %v, want PartialObjectMetadataList; items (-want +got):\n%s", list["kind"], diff)
			}
			one := f.decode(t, server.get(t, path+"/a", f.accept(asMetadata)))
			if diff := cmp.Diff(want[0], any(listedItem(one))); diff != "" || one["kind"] != "PartialObjectMetadata" {
				t.Errorf("get: %v, want PartialObjectMetadata (-want +got):\n%s", one["kind"], diff)
			}
			if f.stream == "" {
				return
			}
			events := f.watch(t, server, path+"?watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan", asMetadata)
			for i := range want {
				added := events.next(t, watch.Added)
				if diff := cmp.Diff(want[i], any(listedItem(added))); diff != "" || added["kind"] != "PartialObjectMetadata" {
					t.Errorf("watch: %v, want PartialObjectMetadata (-want +got):\n%s", added["kind"], diff)
				}
			}
			bookmark := events.next(t, watch.Bookmark)
			if end, _, _ := unstructured.NestedString(bookmark, "metadata", "annotations", metav1.InitialEventsAnnotationKey); end != "true" {
				t.Errorf("bookmark %v, want the annotation %s", bookmark, metav1.InitialEventsAnnotationKey)
			}
			patch := []byte(`{"metadata":{"labels":{"form":"` + strings.ToLower(f.name) + `"}}}`)
			changed, err := client.Patch(t.Context(), "a", types.MergePatchType, patch, metav1.PatchOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if got := versionOf(events.next(t, watch.Modified)); got != changed.GetResourceVersion() {
				t.Errorf("watch: change to %s, want %s", got, changed.GetResourceVersion())
			}
		})
	}
}

// TestEngineMetadataRefused: what does not exist, or not of this, is refused, as it is of a built-in kind.
func TestEngineMetadataRefused(t *testing.T) {
	server, namespace := aggregator(t, shared), newNamespace(t, shared)
	newEngines(t, namespace, "a")
	types := map[string]string{"Engine": "api.Engine", "ConfigMap": "core.ConfigMap"}
	names := map[string]string{"Engine": "/a", "ConfigMap": "/kube-root-ca.crt"}
	const accepted = "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf"
	for kind, path := range resourcePaths(namespace) {
		for _, tc := range []struct{ name, path, as, message string }{
			{"version of metadata", names[kind], ";as=PartialObjectMetadata;g=meta.k8s.io;v=v9", accepted},
			{"group of metadata", names[kind], ";as=PartialObjectMetadata;g=example.com;v=v1", accepted},
			{"version of tables", "", ";as=Table;g=meta.k8s.io;v=v9", accepted},
			{"list as one", "", asMetadata, "you requested PartialObjectMetadata, but the requested object is a list (*" + types[kind] + "List)"},
			{"one as list", names[kind], asMetadataList, "you requested PartialObjectMetadataList, but the requested object is not a list (*" + types[kind] + ")"},
		} {
			t.Run(tc.name+" "+kind, func(t *testing.T) {
				shared.Eventually(t, "the ConfigMap of each namespace", patience, existing(server, path+names[kind]))
				a := server.do(t, http.MethodGet, path+tc.path, forms[0].accept(tc.as), nil)
				s := statusOf(t, a)
				if a.status != http.StatusNotAcceptable || s.Reason != metav1.StatusReasonNotAcceptable || s.Message != tc.message {
					t.Errorf("got %d %s %s, want 406 NotAcceptable %s", a.status, s.Reason, s.Message, tc.message)
				}
			})
		}
	}
}

// TestEngineMetadataClient uses the client of the controllers, which prefers protobuf.
func TestEngineMetadataClient(t *testing.T) {
	namespace := newNamespace(t, shared)
	newEngines(t, namespace, "a", "b")
	client, err := metadata.NewForConfig(adminConfig(t, shared))
	if err != nil {
		t.Fatal(err)
	}
	list, err := client.Resource(engineCase.resource).Namespace(namespace).List(t.Context(), metav1.ListOptions{Limit: 1})
	if err != nil || len(list.Items) != 1 || list.Items[0].Name != "a" || list.Continue == "" || *list.RemainingItemCount != 1 {
		t.Fatalf("first page: %v (%v), want a, and one more to follow", list, err)
	}
	one, err := client.Resource(engineCase.resource).Namespace(namespace).Patch(t.Context(), "a", types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})
	if err != nil || one.Labels["a"] != "b" || one.UID != list.Items[0].UID {
		t.Errorf("patch: %v (%v), want the label on %s", one, err, list.Items[0].UID)
	}
}
