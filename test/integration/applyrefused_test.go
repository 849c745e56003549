// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"net/http"
	"testing"
)

// TestEngineApplyRefused: an apply that cannot be done says why, in the words of every resource, and stores nothing.
func TestEngineApplyRefused(t *testing.T) {
	wires := asBuiltIn(t, adminConfig(t, shared), newNamespace(t, shared))
	for _, w := range wires {
		w.must(t, http.StatusCreated, http.MethodPost, "", jsonType, wireObject(`{"name":"w"}`, ""))
	}
	check := unchanged(t, wires)
	for _, x := range []exchange{
		{name: "no fieldManager", path: "/w", body: wireObject(`{"name":"w"}`, ""),
			want: `422 Invalid: PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch (meta.k8s.io ` +
				`PatchOptions) [fieldManager: FieldValueRequired]`},
		{name: "no fieldManager, new object", path: "/x", body: wireObject(`{"name":"x"}`, ""),
			want: `422 Invalid: PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch (meta.k8s.io ` +
				`PatchOptions) [fieldManager: FieldValueRequired]`},
		{name: "unprintable fieldManager", path: "/w?fieldManager=%07", body: wireObject(`{"name":"w"}`, ""),
			want: `422 Invalid: PatchOptions.meta.k8s.io "" is invalid: fieldManager: Invalid value: "\a": invalid character U+0007 (at position 0) ` +
				`(meta.k8s.io PatchOptions) [fieldManager: FieldValueInvalid]`},
		{name: "managedFields", path: "/w?fieldManager=m", body: wireObject(`{"name":"w","managedFields":[{"manager":"m"}]}`, ""),
			want: `400 BadRequest: metadata.managedFields must be nil`},
		{name: "no version", path: "/w?fieldManager=m", body: `{"metadata":{"name":"w"}}`, want: `400 BadRequest: invalid object type: /, Kind=`},
		{name: "other version", path: "/w?fieldManager=m", body: `{"apiVersion":"<group>/v7","kind":"<kind>","metadata":{"name":"w"}}`,
			want: `400 BadRequest: invalid object type: <group>/v7, Kind=<kind>`},
		{name: "malformed", path: "/w?fieldManager=m", body: "a: [b",
			want: `400 BadRequest: error decoding YAML: error converting YAML to JSON: yaml: line 1: did not find expected ',' or ']'`},
		{name: "array", path: "/w?fieldManager=m", body: "- a\n- b\n",
			want: `400 BadRequest: error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal array into Go value of type ` +
				`map[string]interface {}`},
		{name: "other name", path: "/w?fieldManager=m", body: wireObject(`{"name":"x"}`, ""),
			want: `400 BadRequest: the name of the object (x) does not match the name on the URL (w)`},
		{name: "other name, new object", path: "/y?fieldManager=m", body: wireObject(`{"name":"x"}`, ""),
			want: `400 BadRequest: the name of the object (x) does not match the name on the URL (y)`},
		{name: "other namespace", path: "/w?fieldManager=m", body: wireObject(`{"name":"w","namespace":"other"}`, ""), want: wrongPlace},
		{name: "old resourceVersion", path: "/w?fieldManager=m", body: `{"apiVersion":"<gv>","kind":"<kind>","metadata":{"name":"w","resourceVersion":"1","labels":{"a":"b"}}}`,
			want: outdated},
		{name: "uid, new object", path: "/x?fieldManager=m", body: wireObject(`{"name":"x","uid":"mine"}`, ""),
			want: `409 Conflict: Operation cannot be fulfilled on <resource> "x": uid mismatch: the provided object specified uid mine, and no existing ` +
				`object was found (<group> <plural> x)`},
		{name: "other uid", path: "/w?fieldManager=m", body: `{"apiVersion":"<gv>","kind":"<kind>","metadata":{"name":"w","uid":"mine"}}`,
			want: `422 Invalid: <groupKind> "w" is invalid: metadata.uid: Invalid value: "mine": field is immutable (<group> <kind> w) [metadata.uid: ` +
				`FieldValueInvalid, metadata.uid: FieldValueInvalid]`},
		{name: "invalid, new object", path: "/x?fieldManager=m", body: wireObject(`{"name":"x","labels":{"a b":"c"}}`, ""),
			want: `422 Invalid: <groupKind> "x" is invalid: metadata.labels: Invalid value: "a b": … (<group> <kind> x) [metadata.labels: FieldValueInvalid…]`},
		{name: "kind of another API", path: "/w?fieldManager=m", body: `{"apiVersion":"<gv>","kind":"Other","metadata":{"name":"w"}}`,
			want: `400 BadRequest: invalid object type: <gv>, Kind=Other`},
	} {
		x.method, x.contentType = http.MethodPatch, applyPatch
		x.check(t, wires)
	}
	check()
}

// TestEngineApplyOutsideSchema: an apply patch that does not fit the schema is the client's fault, so its answer is 400. For a
// built-in resource it is 500: once this test says otherwise, registry's badApply can go.
func TestEngineApplyOutsideSchema(t *testing.T) {
	wires := asBuiltIn(t, adminConfig(t, shared), newNamespace(t, shared))
	engines, builtIn := map[string]wire{"engines": wires["engines"]}, map[string]wire{"ingresses": wires["ingresses"]}
	for _, w := range wires {
		w.must(t, http.StatusCreated, http.MethodPost, "", jsonType, wireObject(`{"name":"w"}`, ""))
	}
	check := unchanged(t, wires)
	for _, x := range []exchange{
		{name: "unknown field", path: "/w", body: `"spec":{"bogus":1}`, want: `.spec.bogus: field not declared in schema`},
		{name: "unknown field, new object", path: "/x", body: `"spec":{"bogus":1}`, want: `.spec.bogus: field not declared in schema`},
		{name: "unknown field, status", path: "/w/status", body: `"status":{"bogus":1}`, want: `.status.bogus: field not declared in schema`},
		{name: "string for number", path: "/w", body: `"spec":{<number:>"ten"<:number>}`, want: `.spec.…: expected numeric (int or float), got string`},
		{name: "finalizer twice", path: "/w", body: `"metadata":{"finalizers":["a/b","a/b"]}`, want: `.metadata.finalizers: duplicate entries for key [="a/b"]`},
		{name: "object for list", path: "/w", body: `"metadata":{"finalizers":{"a":"b"}}`, want: `.metadata.finalizers: expected list, got &{map[a:b]}`},
		{name: "no time", path: "/w", body: `"metadata":{"creationTimestamp":"noon"}`, want: `unable to convert unstructured object to … parsing time "noon"…`},
		{name: "fraction", path: "/w", body: `"spec":{<number:>1.5<:number>}`, want: `unable to convert unstructured object to … cannot convert float64 to int32`},
	} {
		x.method, x.contentType, x.path = http.MethodPatch, applyPatch, x.path+"?fieldManager=m&force=true"
		x.body = `{"apiVersion":"<gv>","kind":"<kind>",` + x.body + `}`
		reason := `failed to … object (/…; <gv>, Kind=<kind>)…: ` + x.want
		x.want = "400 BadRequest: " + reason
		x.check(t, engines)
		x.name, x.want = x.name+", built-in", "500 : "+reason
		x.check(t, builtIn)
	}
	check()
}
