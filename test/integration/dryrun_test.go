// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"net/http"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
)

// TestEngineDryRunRefused: a dryRun that the server does not know is an error, not a change.
func TestEngineDryRunRefused(t *testing.T) {
	wires := asBuiltIn(t, adminConfig(t, shared), newNamespace(t, shared))
	for _, w := range wires {
		w.must(t, http.StatusCreated, http.MethodPost, "", jsonType, wireObject(`{"name":"w"}`, ""))
	}
	check := unchanged(t, wires)
	for _, x := range []exchange{
		{name: "create", method: http.MethodPost, path: "?dryRun=Some", contentType: jsonType, body: wireObject(`{"name":"x"}`, ""),
			want: `422 Invalid: CreateOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: ["Some"]: supported values: "All" (meta.k8s.io ` +
				`CreateOptions) [dryRun: FieldValueNotSupported]`},
		{name: "create empty", method: http.MethodPost, path: "?dryRun=", contentType: jsonType, body: wireObject(`{"name":"x"}`, ""),
			want: `422 Invalid: CreateOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: [""]: supported values: "All" (meta.k8s.io ` +
				`CreateOptions) [dryRun: FieldValueNotSupported]`},
		{name: "create all and some", method: http.MethodPost, path: "?dryRun=All&dryRun=Some", contentType: jsonType, body: wireObject(`{"name":"x"}`, ""),
			want: `422 Invalid: CreateOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: ["All","Some"]: supported values: "All" (meta.k8s.io ` +
				`CreateOptions) [dryRun: FieldValueNotSupported]`},
		{name: "update", method: http.MethodPut, path: "/w?dryRun=all", contentType: jsonType, body: wireObject(`{"name":"w","labels":{"a":"b"}}`, ""),
			want: `422 Invalid: UpdateOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: ["all"]: supported values: "All" (meta.k8s.io ` +
				`UpdateOptions) [dryRun: FieldValueNotSupported]`},
		{name: "update status", method: http.MethodPut, path: "/w/status?dryRun=true", contentType: jsonType, body: wireObject(`{"name":"w"}`, `,"status":{}`),
			want: `422 Invalid: UpdateOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: ["true"]: supported values: "All" (meta.k8s.io ` +
				`UpdateOptions) [dryRun: FieldValueNotSupported]`},
		{name: "patch", method: http.MethodPatch, path: "/w?dryRun=Some", contentType: mergePatch, body: `{"metadata":{"labels":{"a":"b"}}}`,
			want: `422 Invalid: PatchOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: ["Some"]: supported values: "All" (meta.k8s.io ` +
				`PatchOptions) [dryRun: FieldValueNotSupported]`},
		{name: "delete", method: http.MethodDelete, path: "/w?dryRun=Some",
			want: `422 Invalid: DeleteOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: ["Some"]: supported values: "All" (meta.k8s.io ` +
				`DeleteOptions) [dryRun: FieldValueNotSupported]`},
		{name: "delete in the body", method: http.MethodDelete, path: "/w", contentType: jsonType, body: `{"dryRun":["Some"]}`,
			want: `422 Invalid: DeleteOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: ["Some"]: supported values: "All" (meta.k8s.io ` +
				`DeleteOptions) [dryRun: FieldValueNotSupported]`},
		{name: "deletecollection", method: http.MethodDelete, path: "?dryRun=Some",
			want: `422 Invalid: DeleteOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: ["Some"]: supported values: "All" (meta.k8s.io ` +
				`DeleteOptions) [dryRun: FieldValueNotSupported]`},
	} {
		x.check(t, wires)
	}
	check()
}

// TestEngineDryRun: with dryRun=All each kind of write answers as if it had been done, with defaults, generated names and
// the fields that the server sets; nothing is stored and nobody who watches hears of it.
func TestEngineDryRun(t *testing.T) {
	namespace := newNamespace(t, shared)
	w := engineWire(t, adminConfig(t, shared), namespace)
	created := w.must(t, http.StatusCreated, http.MethodPost, "", jsonType, wireObject(`{"name":"w"}`, ""))
	w.must(t, http.StatusCreated, http.MethodPost, "", jsonType, wireObject(`{"name":"held","finalizers":["`+stay+`"]}`, ""))
	w.must(t, http.StatusCreated, http.MethodPost, "", jsonType, wireObject(`{"name":"leaving","finalizers":["`+stay+`"]}`, ""))
	last := w.must(t, http.StatusOK, http.MethodDelete, "/leaving", "", "")
	check := unchanged(t, map[string]wire{"engines": w})
	client := engineCase.client(t, adminConfig(t, shared), namespace)
	events, err := client.Watch(t.Context(), metav1.ListOptions{ResourceVersion: last.GetResourceVersion()})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()

	spec := `{"apiVersion":"<gv>","kind":"<kind>","metadata":{"name":"w"},"spec":{"model":"m","replicas":7}}`
	for _, tc := range []struct {
		name, method, path, contentType, body string
		code                                  int
		// field of the answer and its value, as JSON.
		field []string
		want  string
	}{
		{"create", http.MethodPost, "?dryRun=All", jsonType, wireObject(`{"name":"x"}`, ""), 201, []string{"spec"}, `{"grade":"Standard","model":"m","replicas":1}`},
		{"create with a generated name", http.MethodPost, "?dryRun=All", jsonType, wireObject(`{"generateName":"x-"}`, ""), 201, []string{"metadata", "generateName"}, `"x-"`},
		{"create of what is there", http.MethodPost, "?dryRun=All", jsonType, wireObject(`{"name":"w"}`, ""), 409, []string{"reason"}, `"AlreadyExists"`},
		{"create of what is invalid", http.MethodPost, "?dryRun=All", jsonType, wireObject(`{"name":"Upper"}`, ""), 422, []string{"reason"}, `"Invalid"`},
		{"update", http.MethodPut, "/w?dryRun=All", jsonType, spec, 200, []string{"spec", "replicas"}, `7`},
		{"update of the status", http.MethodPut, "/w/status?dryRun=All", jsonType, wireObject(`{"name":"w"}`, `,"status":{"replicas":3}`), 200, []string{"status", "replicas"}, `3`},
		{"json patch", http.MethodPatch, "/w?dryRun=All", jsonPatch, `[{"op":"replace","path":"/spec/replicas","value":7}]`, 200, []string{"spec", "replicas"}, `7`},
		{"merge patch", http.MethodPatch, "/w?dryRun=All", mergePatch, `{"spec":{"replicas":7}}`, 200, []string{"metadata", "generation"}, `2`},
		{"strategic patch", http.MethodPatch, "/w?dryRun=All", strategicPatch, `{"spec":{"replicas":7}}`, 200, []string{"spec", "replicas"}, `7`},
		{"merge patch of the status", http.MethodPatch, "/w/status?dryRun=All", mergePatch, `{"status":{"replicas":3}}`, 200, []string{"status", "replicas"}, `3`},
		{"apply", http.MethodPatch, "/w?dryRun=All&force=true&fieldManager=m", applyPatch, spec, 200, []string{"spec", "replicas"}, `7`},
		{"apply of what is not there", http.MethodPatch, "/x?dryRun=All&fieldManager=m", applyPatch, wireObject(`{"name":"x"}`, ""), 201, []string{"spec", "replicas"}, `1`},
		{"delete", http.MethodDelete, "/w?dryRun=All", "", "", 200, []string{"status"}, `"Success"`},
		{"delete by the body", http.MethodDelete, "/w", jsonType, `{"dryRun":["All"]}`, 200, []string{"status"}, `"Success"`},
		{"delete of what has a finalizer", http.MethodDelete, "/held?dryRun=All", "", "", 200, []string{"metadata", "deletionGracePeriodSeconds"}, `0`},
		{"removal of the last finalizer", http.MethodPatch, "/leaving?dryRun=All", mergePatch, `{"metadata":{"finalizers":null}}`, 200, []string{"metadata", "finalizers"}, `null`},
		{"deletecollection", http.MethodDelete, "?dryRun=All", "", "", 200, []string{"kind"}, `"EngineList"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := w.send(t, tc.method, tc.path, tc.contentType, tc.body)
			if r.code != tc.code {
				t.Fatalf("got %s, want %d", r, tc.code)
			}
			var answer map[string]any
			if err := json.Unmarshal(r.body, &answer); err != nil {
				t.Fatal(err)
			}
			value, _, _ := unstructured.NestedFieldNoCopy(answer, tc.field...)
			if got, err := json.Marshal(value); err != nil || string(got) != tc.want {
				t.Errorf("%v in the answer: got %s, want %s (%v)", tc.field, got, tc.want, err)
			}
			check()
		})
	}

	// What a dry run would have stored has no resourceVersion of its own.
	x := w.must(t, http.StatusCreated, http.MethodPost, "?dryRun=All", jsonType, wireObject(`{"generateName":"x-"}`, ""))
	if x.GetResourceVersion() != "" || len(x.GetName()) != len("x-")+5 || x.GetUID() == "" {
		t.Errorf("created in a dry run: name %s, uid %s, resourceVersion %q; want a name, a uid and no resourceVersion", x.GetName(), x.GetUID(), x.GetResourceVersion())
	}
	if x := w.must(t, http.StatusOK, http.MethodPatch, "/w?dryRun=All", mergePatch, `{"spec":{"replicas":7}}`); x.GetResourceVersion() != created.GetResourceVersion() {
		t.Errorf("patched in a dry run: resourceVersion %s, want %s", x.GetResourceVersion(), created.GetResourceVersion())
	}
	// The first event is that of the first real write.
	marker := w.must(t, http.StatusCreated, http.MethodPost, "", jsonType, wireObject(`{"name":"marker"}`, ""))
	expect(t, events, watch.Added, marker)
	w.must(t, http.StatusOK, http.MethodPatch, "/held", mergePatch, `{"metadata":{"finalizers":null}}`)
	w.must(t, http.StatusOK, http.MethodPatch, "/leaving", mergePatch, `{"metadata":{"finalizers":null}}`)
}
