// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestEngineUpdateRefused: an update that cannot be done says why, in the words of every resource, and stores nothing.
func TestEngineUpdateRefused(t *testing.T) {
	wires := asBuiltIn(t, adminConfig(t, shared), newNamespace(t, shared))
	for _, w := range wires {
		w.must(t, http.StatusCreated, http.MethodPost, "", jsonType, wireObject(`{"name":"w"}`, ""))
	}
	check := unchanged(t, wires)
	for _, x := range []exchange{
		{name: "old resourceVersion", path: "/w", body: wireObject(`{"name":"w","resourceVersion":"1"}`, ""), want: outdated},
		{name: "old resourceVersion of the status", path: "/w/status", body: wireObject(`{"name":"w","resourceVersion":"1"}`, `,"status":{}`),
			want: outdated},
		{name: "missing", path: "/x", body: wireObject(`{"name":"x"}`, ""), want: missing},
		{name: "missing with resourceVersion", path: "/x", body: wireObject(`{"name":"x","resourceVersion":"1"}`, ""), want: missing},
		{name: "missing with uid", path: "/x", body: wireObject(`{"name":"x","uid":"other"}`, ""), want: missing},
		{name: "status of missing", path: "/x/status", body: wireObject(`{"name":"x"}`, `,"status":{}`), want: missing},
		{name: "other uid", path: "/w", body: wireObject(`{"name":"w","uid":"other"}`, ""),
			want: `409 Conflict: Operation cannot be fulfilled on <resource> "w": StorageError: invalid object, Code: 4, Key: …, ResourceVersion: 0, ` +
				`AdditionalErrorMsg: Precondition failed: UID in precondition: other, UID in object meta: … (<group> <plural> w)`},
		{name: "other name", path: "/w", body: wireObject(`{"name":"x"}`, ""),
			want: `400 BadRequest: the name of the object (x) does not match the name on the URL (w)`},
		{name: "no name", path: "/w", body: wireObject(`{}`, ""),
			want: `400 BadRequest: the name of the object (w based on URL) was undeterminable: name must be provided`},
		{name: "other namespace", path: "/w", body: wireObject(`{"name":"w","namespace":"other"}`, ""), want: wrongPlace},
		{name: "deletionTimestamp", path: "/w", body: wireObject(`{"name":"w","deletionTimestamp":"2001-01-01T00:00:00Z"}`, ""),
			want: `422 Invalid: <groupKind> "w" is invalid: metadata.deletionTimestamp: Invalid value: "2001-01-01T00:00:00Z": field is immutable ` +
				`(<group> <kind> w) [metadata.deletionTimestamp: FieldValueInvalid, metadata.deletionTimestamp: FieldValueInvalid]`},
		{name: "deletionGracePeriodSeconds", path: "/w", body: wireObject(`{"name":"w","deletionGracePeriodSeconds":1}`, ""),
			want: `422 Invalid: <groupKind> "w" is invalid: metadata.deletionGracePeriodSeconds: Invalid value: 1: field is immutable (<group> <kind> w) ` +
				`[metadata.deletionGracePeriodSeconds: FieldValueInvalid, metadata.deletionGracePeriodSeconds: FieldValueInvalid]`},
		{name: "collection", path: "", body: wireObject(`{"name":"w"}`, ""),
			want: `405 MethodNotAllowed: the server does not allow this method on the requested resource`},
	} {
		x.method, x.contentType = http.MethodPut, jsonType
		x.check(t, wires)
	}
	check()
}

// TestEngineUpdate: an update replaces what a client may write and keeps what only the server may.
func TestEngineUpdate(t *testing.T) {
	for resource, w := range asBuiltIn(t, adminConfig(t, shared), newNamespace(t, shared)) {
		t.Run(resource, func(t *testing.T) {
			created := w.must(t, http.StatusCreated, http.MethodPost, "", jsonType, wireObject(`{"name":"w","labels":{"a":"b"}}`, ""))

			// Without a resourceVersion the last writer wins.
			updated := w.must(t, http.StatusOK, http.MethodPut, "/w", jsonType,
				wireObject(`{"name":"w","annotations":{"c":"d"},"generation":7,"creationTimestamp":"2001-01-01T00:00:00Z"}`, ""))
			if len(updated.GetLabels()) != 0 {
				t.Errorf("labels %v after an update without them, want none", updated.GetLabels())
			}
			kept := func(m metav1.Object) []any {
				return []any{m.GetUID(), m.GetGeneration(), m.GetCreationTimestamp()}
			}
			if diff := cmp.Diff(kept(created), kept(updated)); diff != "" {
				t.Errorf("uid, generation and creationTimestamp after an update that sets others (-before +after):\n%s", diff)
			}
			if updated.GetResourceVersion() == created.GetResourceVersion() {
				t.Errorf("resourceVersion %s after an update, want another", updated.GetResourceVersion())
			}

			// An update that changes nothing writes nothing: controllers that write what they see make no events.
			data, err := updated.MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			same := w.must(t, http.StatusOK, http.MethodPut, "/w", jsonType, string(data))
			if diff := cmp.Diff(updated, same); diff != "" {
				t.Errorf("an update without a change (-before +after):\n%s", diff)
			}

			// managedFields [{}] forgets who owns what, as clients that migrate between managers do; the update itself owns nothing new.
			reset := w.must(t, http.StatusOK, http.MethodPut, "/w", jsonType, wireObject(`{"name":"w","annotations":{"c":"d"},"managedFields":[{}]}`, ""))
			if entries := reset.GetManagedFields(); len(entries) != 0 {
				t.Errorf("managedFields after a reset: %v, want none", entries)
			}
		})
	}
}
