// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"net/http"
	"strings"
	"testing"
)

// TestEnginePatchRefused: a patch that cannot be done says why, in the words of every resource, and stores nothing.
func TestEnginePatchRefused(t *testing.T) {
	wires := asBuiltIn(t, adminConfig(t, shared), newNamespace(t, shared))
	for _, w := range wires {
		w.must(t, http.StatusCreated, http.MethodPost, "", jsonType, wireObject(`{"name":"w","labels":{"a":"b"}}`, ""))
	}
	check := unchanged(t, wires)
	for _, x := range []exchange{
		{name: "of no type", contentType: "", body: `{}`, want: `415 UnsupportedMediaType: 415: Unsupported Media Type`},
		{name: "of type JSON", contentType: jsonType, body: `{}`, want: `415 UnsupportedMediaType: 415: Unsupported Media Type`},
		{name: "json of missing", path: "/x", contentType: jsonPatch, body: `[]`, want: missing},
		{name: "merge of missing", path: "/x", contentType: mergePatch, body: `{}`, want: missing},
		{name: "strategic of missing", path: "/x", contentType: strategicPatch, body: `{}`, want: missing},
		{name: "status of missing", path: "/x/status", contentType: mergePatch, body: `{"status":{}}`, want: missing},
		{name: "apply to the status of missing", path: "/x/status?fieldManager=m", contentType: applyPatch, body: `{"apiVersion":"<gv>","kind":"<kind>","status":{}}`,
			want: missing},

		{name: "json malformed", contentType: jsonPatch, body: `[{`, want: `400 BadRequest: error decoding patch: unexpected end of JSON input`},
		{name: "json that is no list", contentType: jsonPatch, body: `{"op":"remove"}`,
			want: `400 BadRequest: error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp`},
		{name: "json unknown operation", contentType: jsonPatch, body: `[{"op":"turn","path":"/spec"}]`,
			want: `422 Invalid: the server rejected our request due to an error in our request`},
		{name: "json test fails", contentType: jsonPatch, body: `[{"op":"test","path":"/metadata/labels/a","value":"x"},{"op":"replace","path":"/metadata/labels/a","value":"c"}]`,
			want: `422 Invalid: the server rejected our request due to an error in our request`},
		{name: "json remove of what is not there", contentType: jsonPatch, body: `[{"op":"remove","path":"/metadata/annotations/x"}]`,
			want: `422 Invalid: the server rejected our request due to an error in our request`},
		{name: "json index out of range", contentType: jsonPatch, body: `[{"op":"add","path":"/metadata/finalizers","value":[]},{"op":"add","path":"/metadata/finalizers/5","value":"a/b"}]`,
			want: `422 Invalid: the server rejected our request due to an error in our request`},
		{name: "json more than 10000 operations", contentType: jsonPatch,
			body: `[` + strings.Repeat(`{"op":"test","path":"/metadata/name","value":"w"},`, 10000) + `{"op":"remove","path":"/metadata/labels"}]`,
			want: `413 RequestEntityTooLarge: Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001`},
		{name: "json old resourceVersion", contentType: jsonPatch, body: `[{"op":"replace","path":"/metadata/resourceVersion","value":"1"}]`,
			want: outdated},
		{name: "json removes the metadata", contentType: jsonPatch, body: `[{"op":"remove","path":"/metadata"}]`,
			want: `400 BadRequest: the name of the object (w based on URL) was undeterminable: name must be provided`},

		{name: "merge malformed", contentType: mergePatch, body: `{`, want: `400 BadRequest: error decoding patch: unexpected end of JSON input`},
		{name: "merge that is a list", contentType: mergePatch, body: `[]`,
			want: `400 BadRequest: error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}`},
		{name: "merge empty", contentType: mergePatch, body: ``, want: `400 BadRequest: error decoding patch: unexpected end of JSON input`},
		{name: "merge old resourceVersion", contentType: mergePatch, body: `{"metadata":{"resourceVersion":"1","labels":{"a":"c"}}}`, want: outdated},
		{name: "merge other name", contentType: mergePatch, body: `{"metadata":{"name":"x"}}`,
			want: `400 BadRequest: the name of the object (x) does not match the name on the URL (w)`},
		{name: "merge other namespace", contentType: mergePatch, body: `{"metadata":{"namespace":"x"}}`, want: wrongPlace},
		{name: "merge other uid", contentType: mergePatch, body: `{"metadata":{"uid":"x"}}`,
			want: `422 Invalid: <groupKind> "w" is invalid: metadata.uid: Invalid value: "x": field is immutable (<group> <kind> w) [metadata.uid: ` +
				`FieldValueInvalid, metadata.uid: FieldValueInvalid]`},
		{name: "merge other kind", contentType: mergePatch, body: `{"kind":"Other"}`,
			want: `422 Invalid:  "" is invalid: patch: Invalid value: …: no kind "Other" is registered for version "<gv>" in scheme … [patch: FieldValueInvalid]`},
		{name: "merge string for number", contentType: mergePatch, body: `{"spec":{<number:>"ten"<:number>}}`,
			want: `422 Invalid:  "" is invalid: patch: Invalid value: …: json: cannot unmarshal string into Go struct field <kindSpec>.spec.<number> of ` +
				`type int32 [patch: FieldValueInvalid]`},

		{name: "strategic malformed", contentType: strategicPatch, body: `{`, want: `400 BadRequest: unexpected end of JSON input`},
		{name: "strategic that is a list", contentType: strategicPatch, body: `[]`,
			want: `400 BadRequest: json: cannot unmarshal array into Go value of type map[string]interface {}`},
		{name: "strategic empty", contentType: strategicPatch, body: ``, want: `400 BadRequest: unexpected end of JSON input`},
		{name: "strategic old resourceVersion", contentType: strategicPatch, body: `{"metadata":{"resourceVersion":"1","labels":{"a":"c"}}}`,
			want: outdated},
		{name: "strategic other name", contentType: strategicPatch, body: `{"metadata":{"name":"x"}}`,
			want: `400 BadRequest: the name of the object (x) does not match the name on the URL (w)`},
		{name: "strategic string for number", contentType: strategicPatch, body: `{"spec":{<number:>"ten"<:number>}}`,
			want: `422 Invalid:  "" is invalid: patch: Invalid value: …: unrecognized type: int32 [patch: FieldValueInvalid]`},
		{name: "strategic keys beside $retainKeys", contentType: strategicPatch, body: `{"metadata":{"$retainKeys":["name"],"labels":{"a":"c"}}}`,
			want: `400 BadRequest: invalid patch format of retainKeys`},
		{name: "strategic $retainKeys no list", contentType: strategicPatch, body: `{"metadata":{"$retainKeys":"name"}}`,
			want: `400 BadRequest: invalid patch format of retainKeys`},

		{name: "forced merge", path: "/w?force=true", contentType: mergePatch, body: `{}`,
			want: `422 Invalid: PatchOptions.meta.k8s.io "" is invalid: force: Forbidden: may not be specified for non-apply patch (meta.k8s.io ` +
				`PatchOptions) [force: FieldValueForbidden]`},
	} {
		x.method = http.MethodPatch
		if x.path == "" {
			x.path = "/w"
		}
		x.check(t, wires)
	}
	check()
}
