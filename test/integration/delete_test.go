// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestEngineDeleteRefused: a delete that cannot be done says why, in the words of every resource, and deletes nothing.
func TestEngineDeleteRefused(t *testing.T) {
	wires := asBuiltIn(t, adminConfig(t, shared), newNamespace(t, shared))
	for _, w := range wires {
		w.must(t, http.StatusCreated, http.MethodPost, "", jsonType, wireObject(`{"name":"w"}`, ""))
	}
	check := unchanged(t, wires)
	options := func(members string) string { return `{"apiVersion":"v1","kind":"DeleteOptions",` + members + `}` }
	for _, x := range []exchange{
		{name: "missing", path: "/x", want: missing},
		{name: "missing with uid", path: "/x", body: options(`"preconditions":{"uid":"other"}`), want: missing},
		{name: "other uid", path: "/w", body: options(`"preconditions":{"uid":"other"}`),
			want: `409 Conflict: Operation cannot be fulfilled on <groupKind> "w": the UID in the precondition (other) does not match the UID in record ` +
				`(…). The object might have been deleted and then recreated (<group> <kind> w)`},
		{name: "other resourceVersion", path: "/w", body: options(`"preconditions":{"resourceVersion":"1"}`),
			want: `409 Conflict: Operation cannot be fulfilled on <groupKind> "w": the ResourceVersion in the precondition (1) does not match the ` +
				`ResourceVersion in record (…). The object might have been modified (<group> <kind> w)`},
		{name: "unknown policy in the query", path: "/w?propagationPolicy=Sometimes",
			want: `422 Invalid: DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: Unsupported value: "Sometimes": supported values: ` +
				`"Foreground", "Background", "Orphan", "nil" (meta.k8s.io DeleteOptions) [propagationPolicy: FieldValueNotSupported]`},
		{name: "unknown policy in the body", path: "/w", body: options(`"propagationPolicy":"Sometimes"`),
			want: `422 Invalid: DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: Unsupported value: "Sometimes": supported values: ` +
				`"Foreground", "Background", "Orphan", "nil" (meta.k8s.io DeleteOptions) [propagationPolicy: FieldValueNotSupported]`},
		{name: "both policies", path: "/w?propagationPolicy=Orphan&orphanDependents=true",
			want: `422 Invalid: DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: Invalid value: "Orphan": orphanDependents and ` +
				`deletionPropagation cannot be both set (meta.k8s.io DeleteOptions) [propagationPolicy: FieldValueInvalid]`},
		{name: "period no number", path: "/w?gracePeriodSeconds=soon", want: `400 BadRequest: strconv.ParseInt: parsing "soon": invalid syntax`},
		{name: "unknown dryRun", path: "/w?dryRun=Some",
			want: `422 Invalid: DeleteOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: ["Some"]: supported values: "All" (meta.k8s.io ` +
				`DeleteOptions) [dryRun: FieldValueNotSupported]`},
		{name: "body wins over query", path: "/w?dryRun=All", body: options(`"propagationPolicy":"Sometimes"`),
			want: `422 Invalid: DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: Unsupported value: "Sometimes": supported values: ` +
				`"Foreground", "Background", "Orphan", "nil" (meta.k8s.io DeleteOptions) [propagationPolicy: FieldValueNotSupported]`},
		{name: "collection with unknown policy", path: "?propagationPolicy=Sometimes",
			want: `422 Invalid: DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: Unsupported value: "Sometimes": supported values: ` +
				`"Foreground", "Background", "Orphan", "nil" (meta.k8s.io DeleteOptions) [propagationPolicy: FieldValueNotSupported]`},
		{name: "collection with a malformed label selector", path: "?labelSelector=a+b",
			want: `400 BadRequest: unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt`},
		{name: "collection with an unknown field", path: "?fieldSelector=spec.bogus%3D1",
			want: `400 BadRequest: "spec.bogus" is not a known field selector: only "metadata.name", "metadata.namespace"…`},
		{name: "collection with a malformed field selector", path: "?fieldSelector=metadata.name",
			want: `400 BadRequest: invalid selector: 'metadata.name'; can't understand 'metadata.name'`},
		{name: "collection with unknown dryRun", path: "?dryRun=Some",
			want: `422 Invalid: DeleteOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: ["Some"]: supported values: "All" (meta.k8s.io ` +
				`DeleteOptions) [dryRun: FieldValueNotSupported]`},
		{name: "collection with other uid", path: "", body: options(`"preconditions":{"uid":"other"}`),
			want: `409 Conflict: Operation cannot be fulfilled on <groupKind> "w": the UID in the precondition (other) does not match the UID in record ` +
				`(…). The object might have been deleted and then recreated (<group> <kind> w)`},
	} {
		x.method, x.contentType = http.MethodDelete, jsonType
		x.check(t, wires)
	}
	check()
}

// TestEngineDelete: an object without finalizers is gone when the answer comes, whatever the options, and the answer says
// which object it was, so that a client can tell it from a later one of the same name.
func TestEngineDelete(t *testing.T) {
	for resource, w := range asBuiltIn(t, adminConfig(t, shared), newNamespace(t, shared)) {
		for _, tc := range []struct{ name, query, body string }{
			{"no options", "", ""},
			{"empty body", "", `{}`},
			{"period in the query", "?gracePeriodSeconds=30", ""},
			{"period in the body", "", `{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":30}`},
			{"negative period", "?gracePeriodSeconds=-1", ""},
			{"policy in the query", "?propagationPolicy=Background", ""},
			{"policy in the body", "", `{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"Background"}`},
			{"options of the group", "", `{"kind":"DeleteOptions","apiVersion":"<gv>","propagationPolicy":"Background"}`},
			{"uid", "", `{"preconditions":{"uid":"%[1]s"}}`},
			{"resourceVersion", "", `{"preconditions":{"resourceVersion":"%[2]s"}}`},
			{"uid and resourceVersion", "", `{"preconditions":{"uid":"%[1]s","resourceVersion":"%[2]s"}}`},
		} {
			t.Run(resource+"/"+tc.name, func(t *testing.T) {
				obj := w.must(t, http.StatusCreated, http.MethodPost, "", jsonType, wireObject(`{"name":"w"}`, ""))
				body := strings.NewReplacer("%[1]s", string(obj.GetUID()), "%[2]s", obj.GetResourceVersion()).Replace(tc.body)
				var got metav1.Status
				if r := w.send(t, http.MethodDelete, "/w"+tc.query, jsonType, body); r.code != http.StatusOK {
					t.Fatalf("delete: %s, want 200", r)
				} else if err := json.Unmarshal(r.body, &got); err != nil {
					t.Fatal(err)
				}
				want := metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess,
					Details: &metav1.StatusDetails{Name: "w", Group: w.fill.Replace("<group>"), Kind: w.fill.Replace("<plural>"), UID: obj.GetUID()}}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("answer to delete (-want +got):\n%s", diff)
				}
				w.gone(t)
			})
		}
	}
}
