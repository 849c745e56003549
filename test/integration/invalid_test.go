// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"net/http"
	"strings"
	"testing"
)

// TestEngineInvalidCauses: a 422 names the object and, for each rule that is broken, the field and the kind of error, so
// that a program can show it beside the field.
func TestEngineInvalidCauses(t *testing.T) {
	wires := map[string]wire{"engines": engineWire(t, adminConfig(t, shared), newNamespace(t, shared))}
	w := wires["engines"]
	w.must(t, http.StatusCreated, http.MethodPost, "", jsonType, wireObject(`{"name":"w"}`, ""))
	check := unchanged(t, wires)
	create := func(spec string) string {
		return `{"apiVersion":"<gv>","kind":"<kind>","metadata":{"name":"x"},"spec":` + spec + `}`
	}
	for _, x := range []exchange{
		{name: "no spec", body: `{"apiVersion":"<gv>","kind":"<kind>","metadata":{"name":"x"}}`,
			want: `422 Invalid: <groupKind> "x" is invalid: spec.model: Required value (<group> <kind> x) [spec.model: FieldValueRequired]`},
		{name: "model missing", body: create(`{}`),
			want: `422 Invalid: <groupKind> "x" is invalid: spec.model: Required value (<group> <kind> x) [spec.model: FieldValueRequired]`},
		{name: "model no label", body: create(`{"model":"Two Words"}`),
			want: `422 Invalid: <groupKind> "x" is invalid: spec.model: Invalid value: "Two Words": a lowercase RFC 1123 label must consist of lower case ` +
				`alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for ` +
				`validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?') (<group> <kind> x) [spec.model: FieldValueInvalid]`},
		{name: "grade unknown", body: create(`{"model":"m","grade":"Luxury"}`),
			want: `422 Invalid: <groupKind> "x" is invalid: spec.grade: Unsupported value: "Luxury": supported values: "Economy", "Premium", "Standard" ` +
				`(<group> <kind> x) [spec.grade: FieldValueNotSupported]`},
		{name: "replicas negative", body: create(`{"model":"m","replicas":-1}`),
			want: `422 Invalid: <groupKind> "x" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0 (<group> <kind> x) ` +
				`[spec.replicas: FieldValueInvalid]`},
		{name: "replicas above maxReplicas", body: create(`{"model":"m","replicas":3,"maxReplicas":2}`),
			want: `422 Invalid: <groupKind> "x" is invalid: spec.replicas: Invalid value: 3: must not be greater than spec.maxReplicas (<group> <kind> x) ` +
				`[spec.replicas: FieldValueInvalid]`},
		{name: "part twice", body: create(`{"model":"m","parts":[{"name":"a"},{"name":"b"},{"name":"a"}]}`),
			want: `422 Invalid: <groupKind> "x" is invalid: spec.parts[2]: Duplicate value: {"name":"a","quantity":1} (<group> <kind> x) [spec.parts[2]: ` +
				`FieldValueDuplicate]`},
		{name: "part without name", body: create(`{"model":"m","parts":[{}]}`),
			want: `422 Invalid: <groupKind> "x" is invalid: spec.parts[0].name: Required value (<group> <kind> x) [spec.parts[0].name: FieldValueRequired]`},
		{name: "part quantity zero", body: create(`{"model":"m","parts":[{"name":"a","quantity":0}]}`),
			want: `422 Invalid: <groupKind> "x" is invalid: spec.parts[0].quantity: Invalid value: 0: must be greater than or equal to 1 (<group> <kind> ` +
				`x) [spec.parts[0].quantity: FieldValueInvalid]`},
		{name: "part material long", body: create(`{"model":"m","parts":[{"name":"a","material":"` + strings.Repeat("x", 64) + `"}]}`),
			want: `422 Invalid: <groupKind> "x" is invalid: spec.parts[0].material: Too long: may not be more than 63 characters (<group> <kind> x) ` +
				`[spec.parts[0].material: FieldValueTooLong]`},
		{name: "too many parts", body: create(`{"model":"m","parts":[` + strings.Repeat(`{"name":"a"},`, 64) + `{"name":"b"}]}`),
			want: `422 Invalid: <groupKind> "x" is invalid: spec.parts: Too many: 65: must have at most 64 items (<group> <kind> x) [spec.parts: FieldValueTooMany]`},
		{name: "several", body: create(`{"grade":"Luxury","replicas":-1}`),
			want: `422 Invalid: <groupKind> "x" is invalid: [spec.model: Required value, spec.grade: Unsupported value: "Luxury": supported values: ` +
				`"Economy", "Premium", "Standard", spec.replicas: Invalid value: -1: must be greater than or equal to 0] (<group> <kind> x) ` +
				`[spec.model: FieldValueRequired, spec.grade: FieldValueNotSupported, spec.replicas: FieldValueInvalid]`},
		{name: "model changed", method: http.MethodPut, path: "/w", body: `{"apiVersion":"<gv>","kind":"<kind>","metadata":{"name":"w"},"spec":{"model":"n"}}`,
			want: `422 Invalid: <groupKind> "w" is invalid: spec.model: Invalid value: null: field is immutable (<group> <kind> w) [spec.model: FieldValueInvalid]`},
		{name: "model changed by a patch", method: http.MethodPatch, path: "/w", contentType: mergePatch, body: `{"spec":{"model":"n"}}`,
			want: `422 Invalid: <groupKind> "w" is invalid: spec.model: Invalid value: null: field is immutable (<group> <kind> w) [spec.model: FieldValueInvalid]`},
		{name: "model changed by apply", method: http.MethodPatch, path: "/w?fieldManager=m&force=true", contentType: applyPatch, body: applied(`{"model":"n"}`),
			want: `422 Invalid: <groupKind> "w" is invalid: spec.model: Invalid value: null: field is immutable (<group> <kind> w) [spec.model: FieldValueInvalid]`},
		{name: "created by apply", method: http.MethodPatch, path: "/x?fieldManager=m", contentType: applyPatch, body: create(`{"model":"m","replicas":-1}`),
			want: `422 Invalid: <groupKind> "x" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0 (<group> <kind> x) ` +
				`[spec.replicas: FieldValueInvalid]`},
		{name: "status", method: http.MethodPatch, path: "/w/status", contentType: mergePatch, body: `{"status":{"replicas":1,"readyReplicas":2}}`,
			want: `422 Invalid: <groupKind> "w" is invalid: status.readyReplicas: Invalid value: 2: must not be greater than status.replicas (<group> ` +
				`<kind> w) [status.readyReplicas: FieldValueInvalid]`},
		{name: "status negative", method: http.MethodPut, path: "/w/status", body: wireObject(`{"name":"w"}`, `,"status":{"replicas":-1,"readyReplicas":-1,"observedGeneration":-1}`),
			want: `422 Invalid: <groupKind> "w" is invalid: [status.observedGeneration: Invalid value: -1: must be greater than or equal to 0, ` +
				`status.replicas: Invalid value: -1: must be greater than or equal to 0, status.readyReplicas: Invalid value: -1: must be greater than ` +
				`or equal to 0] (<group> <kind> w) [status.observedGeneration: FieldValueInvalid, status.replicas: FieldValueInvalid, ` +
				`status.readyReplicas: FieldValueInvalid]`},
		{name: "condition twice", method: http.MethodPatch, path: "/w/status", contentType: mergePatch,
			body: `{"status":{"conditions":[{"type":"Ready","status":"True","reason":"R","lastTransitionTime":"2026-01-01T00:00:00Z"},` +
				`{"type":"Ready","status":"False","reason":"R","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`,
			want: `422 Invalid: <groupKind> "w" is invalid: status.conditions[1]: Duplicate value: ` +
				`{"type":"Ready","status":"False","lastTransitionTime":"2026-01-01T00:00:00Z","reason":"R","message":""} (<group> <kind> w) [status.conditions[1]: ` +
				`FieldValueDuplicate]`},
		{name: "condition of nothing", method: http.MethodPatch, path: "/w/status", contentType: mergePatch,
			body: `{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`,
			want: `422 Invalid: <groupKind> "w" is invalid: [status.conditions[0].lastTransitionTime: Required value, status.conditions[0].reason: Required value] ` +
				`(<group> <kind> w) [status.conditions[0].lastTransitionTime: FieldValueRequired, status.conditions[0].reason: FieldValueRequired]`},
	} {
		if x.method == "" {
			x.method = http.MethodPost
		}
		if x.contentType == "" {
			x.contentType = jsonType
		}
		x.check(t, wires)
	}
	check()
}
