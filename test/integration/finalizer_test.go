// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const stay = "example.com/stay"

// TestEngineFinalizer: an object with finalizers stays until the last is removed; meanwhile it can be changed, but neither
// kept from its deletion nor given new finalizers.
func TestEngineFinalizer(t *testing.T) {
	wires := asBuiltIn(t, adminConfig(t, shared), newNamespace(t, shared))
	for resource, w := range wires {
		t.Run(resource, func(t *testing.T) {
			patch := func(body string) *unstructured.Unstructured {
				t.Helper()
				return w.must(t, http.StatusOK, http.MethodPatch, "/w", mergePatch, body)
			}
			created := w.must(t, http.StatusCreated, http.MethodPost, "", jsonType, wireObject(`{"name":"w","finalizers":["`+stay+`","example.com/also"]}`, ""))
			deleting := w.must(t, http.StatusOK, http.MethodDelete, "/w", "", "")
			if deleting.GetDeletionTimestamp() == nil || deleting.GetUID() != created.GetUID() {
				t.Errorf("deleted: uid %s, deletionTimestamp %s; want uid %s and some time", deleting.GetUID(), deleting.GetDeletionTimestamp(), created.GetUID())
			}
			if period := deleting.GetDeletionGracePeriodSeconds(); period == nil || *period != 0 {
				t.Errorf("deleted: deletionGracePeriodSeconds %v, want 0", period)
			}
			if diff := cmp.Diff([]string{stay, "example.com/also"}, deleting.GetFinalizers()); diff != "" || deleting.GetGeneration() != 2 {
				t.Errorf("deleted: generation %d, want 2; finalizers (-want +got):\n%s", deleting.GetGeneration(), diff)
			}
			if diff := cmp.Diff(deleting, w.must(t, http.StatusOK, http.MethodDelete, "/w", "", "")); diff != "" {
				t.Errorf("deleted again (-first +second):\n%s", diff)
			}

			changed := patch(`{"metadata":{"labels":{"a":"b"},"deletionTimestamp":null,"deletionGracePeriodSeconds":null},"spec":{<number:>7<:number>}}`)
			if diff := cmp.Diff(deleting.GetDeletionTimestamp(), changed.GetDeletionTimestamp()); diff != "" || changed.GetGeneration() != 3 || changed.GetLabels()["a"] != "b" {
				t.Errorf("changed: generation %d, labels %v; want 3 and a=b; deletionTimestamp (-before +after):\n%s", changed.GetGeneration(), changed.GetLabels(), diff)
			}
			exchange{name: "new finalizer", method: http.MethodPatch, path: "/w", contentType: mergePatch, body: `{"metadata":{"finalizers":["` + stay + `","example.com/new"]}}`,
				want: `422 Invalid: <groupKind> "w" is invalid: metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, ` +
					`found new finalizers []string{"example.com/new"} (<group> <kind> w) [metadata.finalizers: FieldValueForbidden…]`,
			}.check(t, map[string]wire{resource: w})

			patch(`{"metadata":{"finalizers":["` + stay + `"]}}`)
			w.must(t, http.StatusOK, http.MethodGet, "/w", "", "")
			if last := patch(`{"metadata":{"finalizers":null}}`); last.GetUID() != created.GetUID() {
				t.Errorf("answer to the removal of the last finalizer: %v, want the object", last)
			}
			w.gone(t)
		})
	}
}

// TestEnginePropagation: the policy of a deletion becomes the finalizer that the garbage collector obeys; without one
// dependents are deleted in the background.
func TestEnginePropagation(t *testing.T) {
	for resource, w := range asBuiltIn(t, adminConfig(t, shared), newNamespace(t, shared)) {
		for i, tc := range []struct {
			name, had, query, body string
			code                   int
			want                   []string
		}{
			{"default", stay, "", "", 200, []string{stay}},
			{"Background", stay, "?propagationPolicy=Background", "", 200, []string{stay}},
			{"Foreground", stay, "?propagationPolicy=Foreground", "", 200, []string{stay, "foregroundDeletion"}},
			{"Orphan", stay, "?propagationPolicy=Orphan", "", 200, []string{stay, "orphan"}},
			{"Foreground in the body", stay, "", `{"propagationPolicy":"Foreground"}`, 200, []string{stay, "foregroundDeletion"}},
			{"Orphan in the body", stay, "", `{"propagationPolicy":"Orphan"}`, 200, []string{stay, "orphan"}},
			{"Orphan in the body, Foreground in the query", stay, "?propagationPolicy=Foreground", `{"propagationPolicy":"Orphan"}`, 200, []string{stay, "orphan"}},
			{"Foreground without other finalizers", "", "?propagationPolicy=Foreground", "", 200, []string{"foregroundDeletion"}},
			{"orphanDependents", stay, "?orphanDependents=true", "", 200, []string{stay, "orphan"}},
			{"not orphanDependents", stay, "?orphanDependents=false", "", 202, []string{stay}},
			{"default of an object that orphans", "orphan," + stay, "", "", 200, []string{"orphan", stay}},
			{"Background of an object that orphans", "orphan," + stay, "?propagationPolicy=Background", "", 200, []string{stay}},
			{"Foreground of an object that orphans", "orphan," + stay, "?propagationPolicy=Foreground", "", 200, []string{stay, "foregroundDeletion"}},
		} {
			t.Run(resource+"/"+tc.name, func(t *testing.T) {
				path := fmt.Sprintf("/w%d", i)
				finalizers := ""
				if tc.had != "" {
					finalizers = `"` + strings.ReplaceAll(tc.had, ",", `","`) + `"`
				}
				w.must(t, http.StatusCreated, http.MethodPost, "", jsonType, wireObject(`{"name":"`+path[1:]+`","finalizers":[`+finalizers+`]}`, ""))
				got := w.must(t, tc.code, http.MethodDelete, path+tc.query, jsonType, tc.body)
				if diff := cmp.Diff(tc.want, got.GetFinalizers()); diff != "" || got.GetDeletionTimestamp() == nil {
					t.Errorf("deletionTimestamp %s, want some; finalizers (-want +got):\n%s", got.GetDeletionTimestamp(), diff)
				}
				if tc.had != "" {
					w.must(t, http.StatusOK, http.MethodPatch, path, mergePatch, `{"metadata":{"finalizers":null}}`)
				}
			})
		}
	}
}
