// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// names returns the names in an answer that is a list, sorted.
func (r reply) names(t *testing.T) []string {
	t.Helper()
	if r.code != http.StatusOK {
		t.Fatalf("got %s, want 200 and a list", r)
	}
	list := unstructured.UnstructuredList{}
	if err := list.UnmarshalJSON(r.body); err != nil {
		t.Fatalf("%v: %s", err, r.body)
	}
	names := []string{}
	for _, item := range list.Items {
		names = append(names, item.GetName())
	}
	slices.Sort(names)
	return names
}

// TestEngineDeleteCollection: what the selectors select is gone and nothing else; the answer lists it.
func TestEngineDeleteCollection(t *testing.T) {
	for _, tc := range []struct {
		name, query   string
		deleted, left []string
	}{
		{"labels", "?labelSelector=app%3Da", []string{"a1", "a2"}, []string{"b1", "b2"}},
		{"labels in a set", "?labelSelector=app+notin+(a)", []string{"b1", "b2"}, []string{"a1", "a2"}},
		{"name", "?fieldSelector=metadata.name%3Da2", []string{"a2"}, []string{"a1", "b1", "b2"}},
		{"not the name", "?fieldSelector=metadata.name!%3Da2", []string{"a1", "b1", "b2"}, []string{"a2"}},
		{"labels and name", "?labelSelector=app%3Da&fieldSelector=metadata.name%3Db1", []string{}, []string{"a1", "a2", "b1", "b2"}},
		{"limit", "?limit=3", []string{"a1", "a2", "b1"}, []string{"b2"}},
		{"all", "", []string{"a1", "a2", "b1", "b2"}, []string{}},
		{"dry run", "?dryRun=All&labelSelector=app%3Da", []string{"a1", "a2"}, []string{"a1", "a2", "b1", "b2"}},
	} {
		namespace := newNamespace(t, shared)
		for resource, w := range asBuiltIn(t, adminConfig(t, shared), namespace) {
			t.Run(tc.name+"/"+resource, func(t *testing.T) {
				for _, name := range []string{"a1", "b1", "a2", "b2"} {
					w.must(t, http.StatusCreated, http.MethodPost, "", jsonType, wireObject(fmt.Sprintf(`{"name":%q,"labels":{"app":%q}}`, name, name[:1]), ""))
				}
				if diff := cmp.Diff(tc.deleted, w.send(t, http.MethodDelete, tc.query, "", "").names(t)); diff != "" {
					t.Errorf("objects in the answer (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(tc.left, w.send(t, http.MethodGet, "", "", "").names(t)); diff != "" {
					t.Errorf("objects that are left (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// TestEngineDeleteCollectionFinalizer: objects with finalizers stay, marked; the others are gone.
func TestEngineDeleteCollectionFinalizer(t *testing.T) {
	w := engineWire(t, adminConfig(t, shared), newNamespace(t, shared))
	w.must(t, http.StatusCreated, http.MethodPost, "", jsonType, wireObject(`{"name":"goes"}`, ""))
	w.must(t, http.StatusCreated, http.MethodPost, "", jsonType, wireObject(`{"name":"stays","finalizers":["`+stay+`"]}`, ""))
	w.send(t, http.MethodDelete, "", jsonType, `{"propagationPolicy":"Orphan"}`).names(t)
	got := w.must(t, http.StatusOK, http.MethodGet, "/stays", "", "")
	if diff := cmp.Diff([]string{stay, "orphan"}, got.GetFinalizers()); diff != "" || got.GetDeletionTimestamp() == nil {
		t.Errorf("deletionTimestamp %s, want some; finalizers (-want +got):\n%s", got.GetDeletionTimestamp(), diff)
	}
}

// TestEngineDeleteCollectionVerb: the right to delete objects one by one does not suffice to delete all at once, nor does
// it take more than the verb deletecollection.
func TestEngineDeleteCollectionVerb(t *testing.T) {
	namespace := newNamespace(t, shared)
	oneByOne := engineWire(t, engineUser(t, namespace, "one-by-one", "get", "list", "delete"), namespace)
	allAtOnce := engineWire(t, engineUser(t, namespace, "all-at-once", "deletecollection"), namespace)
	admin := engineWire(t, adminConfig(t, shared), namespace)
	admin.must(t, http.StatusCreated, http.MethodPost, "", jsonType, wireObject(`{"name":"w"}`, ""))

	want := `403 Forbidden: <resource> is forbidden: User "one-by-one" cannot deletecollection resource "<plural>" in API group "<group>" in the namespace "<namespace>" (<group> <plural>)`
	if got := oneByOne.send(t, http.MethodDelete, "", "", "").String(); got != want {
		t.Errorf("deletecollection by who may delete:\ngot  %s\nwant %s", got, want)
	}
	admin.must(t, http.StatusOK, http.MethodGet, "/w", "", "")
	want = `403 Forbidden: <resource> "w" is forbidden: User "all-at-once" cannot delete resource "<plural>" in API group "<group>" in the namespace "<namespace>" (<group> <plural> w)`
	if got := allAtOnce.send(t, http.MethodDelete, "/w", "", "").String(); got != want {
		t.Errorf("delete by who may deletecollection:\ngot  %s\nwant %s", got, want)
	}
	if diff := cmp.Diff([]string{"w"}, allAtOnce.send(t, http.MethodDelete, "", "", "").names(t)); diff != "" {
		t.Errorf("deletecollection by who may (-want +got):\n%s", diff)
	}
	admin.gone(t)
}
