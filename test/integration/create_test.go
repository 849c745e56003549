// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// TestEngineGenerateName: with generateName the server finds a name that is free, and shortens the prefix so that the
// name is a label. A name that is given wins.
func TestEngineGenerateName(t *testing.T) {
	for resource, w := range asBuiltIn(t, adminConfig(t, shared), newNamespace(t, shared)) {
		t.Run(resource, func(t *testing.T) {
			create := func(metadata string) string {
				t.Helper()
				return w.must(t, http.StatusCreated, http.MethodPost, "", jsonType, wireObject(metadata, "")).GetName()
			}
			long := strings.Repeat("x", 80)
			for _, tc := range []struct{ metadata, want string }{
				{`{"generateName":"part-"}`, `^part-[a-z0-9]{5}$`},
				{fmt.Sprintf(`{"generateName":%q}`, long), `^x{58}[a-z0-9]{5}$`},
				{`{"generateName":"part-","name":"chosen"}`, `^chosen$`},
			} {
				if got := create(tc.metadata); !regexp.MustCompile(tc.want).MatchString(got) {
					t.Errorf("create of %s: got name %q, want %s", tc.metadata, got, tc.want)
				}
			}
			if a, b := create(`{"generateName":"part-"}`), create(`{"generateName":"part-"}`); a == b {
				t.Errorf("two creates with a generateName: got %s twice, want two names", a)
			}
		})
	}
}

// TestEngineCreateServerFields: what only the server may set it sets, whatever the client sent: identity and history of
// an object can be relied on.
func TestEngineCreateServerFields(t *testing.T) {
	for resource, w := range asBuiltIn(t, adminConfig(t, shared), newNamespace(t, shared)) {
		t.Run(resource, func(t *testing.T) {
			got := w.must(t, http.StatusCreated, http.MethodPost, "", jsonType, wireObject(`{"name":"w","uid":"mine","generation":7,"selfLink":"/mine",`+
				`"creationTimestamp":"2001-01-01T00:00:00Z","deletionTimestamp":"2001-01-01T00:00:00Z","deletionGracePeriodSeconds":7}`,
				`,"status":{"replicas":7,"loadBalancer":{"ingress":[{"hostname":"mine"}]}}`))
			if uid := string(got.GetUID()); !regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`).MatchString(uid) {
				t.Errorf("uid: got %q, want one that the server made", uid)
			}
			if got.GetGeneration() != 1 {
				t.Errorf("generation: got %d, want 1", got.GetGeneration())
			}
			if created := got.GetCreationTimestamp(); created.IsZero() || created.Year() == 2001 {
				t.Errorf("creationTimestamp: got %s, want now", created)
			}
			if got.GetResourceVersion() == "" || got.GetSelfLink() != "" {
				t.Errorf("got resourceVersion %q and selfLink %q, want one and none", got.GetResourceVersion(), got.GetSelfLink())
			}
			if got.GetDeletionTimestamp() != nil || got.GetDeletionGracePeriodSeconds() != nil {
				t.Errorf("got a deletion at %s after %v s, want none", got.GetDeletionTimestamp(), got.GetDeletionGracePeriodSeconds())
			}
			if status := fmt.Sprint(got.Object["status"]); strings.Contains(status, "7") || strings.Contains(status, "mine") {
				t.Errorf("status: got %s, want none of what the client sent", status)
			}
			again := w.must(t, http.StatusCreated, http.MethodPost, "", jsonType, wireObject(`{"name":"v","uid":"mine"}`, ""))
			if again.GetUID() == got.GetUID() {
				t.Errorf("two objects with uid %s", got.GetUID())
			}
		})
	}
}

// TestEngineFieldManager: the fields of a write belong to the manager that the request names, or to the client as its
// User-Agent names it, up to the first slash; the name arrives through the aggregator.
func TestEngineFieldManager(t *testing.T) {
	namespace := newNamespace(t, shared)
	config := rest.CopyConfig(adminConfig(t, shared))
	config.UserAgent = "workbench/7.0 (linux)"
	for resource, w := range asBuiltIn(t, config, namespace) {
		t.Run(resource, func(t *testing.T) {
			body := wireObject(`{"generateName":"w-","labels":{"a":"b"}}`, "")
			for _, tc := range []struct{ query, manager string }{{"", "workbench"}, {"?fieldManager=controller", "controller"}} {
				entries := w.must(t, http.StatusCreated, http.MethodPost, tc.query, jsonType, body).GetManagedFields()
				if len(entries) != 1 {
					t.Fatalf("create%s: got %d entries in managedFields, want 1: %v", tc.query, len(entries), entries)
				}
				entry := entries[0]
				entry.FieldsV1, entry.Time = nil, nil
				want := metav1.ManagedFieldsEntry{Manager: tc.manager, Operation: metav1.ManagedFieldsOperationUpdate,
					APIVersion: w.fill.Replace("<gv>"), FieldsType: "FieldsV1"}
				if diff := cmp.Diff(want, entry); diff != "" {
					t.Errorf("create%s: entry of managedFields (-want +got):\n%s", tc.query, diff)
				}
			}
		})
	}
}

// TestEngineCreateRefused: a create that cannot be done says why, in the words of every resource, and stores nothing.
func TestEngineCreateRefused(t *testing.T) {
	wires := asBuiltIn(t, adminConfig(t, shared), newNamespace(t, shared))
	for _, w := range wires {
		w.must(t, http.StatusCreated, http.MethodPost, "", jsonType, wireObject(`{"name":"w"}`, ""))
		w.must(t, http.StatusCreated, http.MethodPost, "", jsonType, wireObject(`{"name":"leaving","finalizers":["`+stay+`"]}`, ""))
		w.must(t, http.StatusOK, http.MethodDelete, "/leaving", "", "")
	}
	t.Cleanup(func() {
		for _, w := range wires {
			w.must(t, http.StatusOK, http.MethodPatch, "/leaving", mergePatch, `{"metadata":{"finalizers":null}}`)
		}
	})
	check := unchanged(t, wires)
	for _, x := range []exchange{
		{name: "exists", body: wireObject(`{"name":"w"}`, ""), want: `409 AlreadyExists: <resource> "w" already exists (<group> <plural> w)`},
		{name: "exists and is being deleted", body: wireObject(`{"name":"leaving"}`, ""),
			want: `409 AlreadyExists: object is being deleted: <resource> "leaving" already exists (<group> <plural> leaving)`},
		{name: "other namespace", body: wireObject(`{"name":"x","namespace":"other"}`, ""), want: wrongPlace},
		{name: "no name", body: wireObject(`{}`, ""), want: invalidName},
		{name: "no metadata", body: `{"apiVersion":"<gv>","kind":"<kind>","spec":<spec>}`, want: invalidName},
		{name: "invalid name", body: wireObject(`{"name":"Upper"}`, ""),
			want: `422 Invalid: <groupKind> "Upper" is invalid: metadata.name: Invalid value: "Upper": … (<group> <kind> Upper) [metadata.name: FieldValueInvalid]`},
		{name: "long name", body: wireObject(fmt.Sprintf(`{"name":%q}`, strings.Repeat("x", 254)), ""),
			want: `422 Invalid: <groupKind> "…" is invalid: metadata.name: Invalid value: "…": must be no more than 253 characters (<group> <kind> …) ` +
				`[metadata.name: FieldValueInvalid]`},
		{name: "path in name", body: wireObject(`{"name":"a/b"}`, ""),
			want: `422 Invalid: <groupKind> "a/b" is invalid: metadata.name: Invalid value: "a/b": … (<group> <kind> a/b) [metadata.name: FieldValueInvalid]`},
		{name: "name in URL", path: "/x", body: wireObject(`{"name":"x"}`, ""), want: `405 MethodNotAllowed: the server does not allow this method on the requested resource`},
		{name: "owner without uid", body: wireObject(`{"name":"x","ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p"}]}`, ""),
			want: `422 Invalid: <groupKind> "x" is invalid: metadata.ownerReferences.uid: Invalid value: "": must not be empty (<group> <kind> x) ` +
				`[metadata.ownerReferences.uid: FieldValueInvalid]`},
		{name: "invalid label", body: wireObject(`{"name":"x","labels":{"a b":"c"}}`, ""),
			want: `422 Invalid: <groupKind> "x" is invalid: metadata.labels: Invalid value: "a b": … (<group> <kind> x) [metadata.labels: FieldValueInvalid]`},
		{name: "invalid annotation", body: wireObject(`{"name":"x","annotations":{"a b":"c"}}`, ""),
			want: `422 Invalid: <groupKind> "x" is invalid: metadata.annotations: Invalid value: "a b": … (<group> <kind> x) [metadata.annotations: FieldValueInvalid]`},
		{name: "invalid finalizer", body: wireObject(`{"name":"x","finalizers":["a b"]}`, ""),
			want: `422 Invalid: <groupKind> "x" is invalid: …metadata.finalizers: Invalid value: "a b": … (<group> <kind> x) [metadata.finalizers: FieldValueInvalid…]`},
		{name: "long fieldManager", path: "?fieldManager=" + strings.Repeat("x", 129), body: wireObject(`{"name":"x"}`, ""),
			want: `422 Invalid: CreateOptions.meta.k8s.io "" is invalid: fieldManager: Too long: may not be more than 128 bytes (meta.k8s.io ` +
				`CreateOptions) [fieldManager: FieldValueTooLong]`},
		{name: "unprintable fieldManager", path: "?fieldManager=%07", body: wireObject(`{"name":"x"}`, ""),
			want: `422 Invalid: CreateOptions.meta.k8s.io "" is invalid: fieldManager: Invalid value: "\a": invalid character U+0007 (at position 0) ` +
				`(meta.k8s.io CreateOptions) [fieldManager: FieldValueInvalid]`},
	} {
		x.method, x.contentType = http.MethodPost, jsonType
		x.check(t, wires)
	}
	check()
	nowhere := asBuiltIn(t, adminConfig(t, shared), "nowhere")
	exchange{name: "no such namespace", method: http.MethodPost, contentType: jsonType, body: wireObject(`{"name":"x"}`, ""),
		want: `404 NotFound: namespaces "<namespace>" not found (namespaces <namespace>)`}.check(t, nowhere)
}
