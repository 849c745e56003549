// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"net/http"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
)

// TestEngineFieldValidation: fields that the resource does not have, and fields that stand there twice, are ignored, lead
// to warnings or to an error, as fieldValidation says; the default is to warn. People find typing errors with it (KEP-2885).
func TestEngineFieldValidation(t *testing.T) {
	wires := asBuiltIn(t, adminConfig(t, shared), newNamespace(t, shared))
	for _, w := range wires {
		w.must(t, http.StatusCreated, http.MethodPost, "", jsonType, wireObject(`{"name":"w"}`, ""))
	}
	check := unchanged(t, wires)
	jsonBody := `{"apiVersion":"<gv>","kind":"<kind>","metadata":{"name":"%[1]s","name":"%[1]s"},"spec":{<number:>1<:number>,"bogus":1},"wrong":2}`
	yamlBody := "apiVersion: <gv>\nkind: <kind>\nmetadata:\n  name: %[1]s\n  name: %[1]s\nspec: {<number:>1<:number>, bogus: 1}\nwrong: 2\n"
	const unknown = ` | 299 - "unknown field \"spec.bogus\"" | 299 - "unknown field \"wrong\""`
	jsonWarnings, yamlWarnings := ` | 299 - "duplicate field \"metadata.name\""`+unknown, ` | 299 - "line 5: key \"name\" already set in map"`+unknown
	const strict = `400 BadRequest: <kind> in version "v1" cannot be handled as a <kind>: strict decoding error: `
	jsonStrict := strict + `duplicate field "metadata.name", unknown field "spec.bogus", unknown field "wrong"`
	yamlStrict := strict + "yaml: unmarshal errors:\n" + `  line 5: key "name" already set in map, unknown field "spec.bogus", unknown field "wrong"`
	patched := ` | 299 - "duplicate field \"wrong\""` + unknown
	refused := `: strict decoding error: duplicate field "wrong", unknown field "spec.bogus", unknown field "wrong" [patch: FieldValueInvalid]`
	for _, tc := range []struct {
		name, method, path, contentType, body string
		// ok is the answer to what is no error; warnings follow it when there are to be any; strict is the error.
		ok, warnings, strict string
	}{
		{"create", http.MethodPost, "", jsonType, fmt.Sprintf(jsonBody, "x"), "201 <kind>", jsonWarnings, jsonStrict},
		{"create yaml", http.MethodPost, "", runtime.ContentTypeYAML, fmt.Sprintf(yamlBody, "x"), "201 <kind>", yamlWarnings, yamlStrict},
		{"update", http.MethodPut, "/w", jsonType, fmt.Sprintf(jsonBody, "w"), "200 <kind>", jsonWarnings, jsonStrict},
		{"update yaml", http.MethodPut, "/w", runtime.ContentTypeYAML, fmt.Sprintf(yamlBody, "w"), "200 <kind>", yamlWarnings, yamlStrict},
		{"update status", http.MethodPut, "/w/status", jsonType, wireObject(`{"name":"w"}`, `,"status":{"bogus":1}`), "200 <kind>",
			` | 299 - "unknown field \"status.bogus\""`,
			strict + `unknown field "status.bogus"`},
		{"json patch", http.MethodPatch, "/w", jsonPatch, `[{"op":"add","op":"add","path":"/spec/bogus","value":1,"extra":2}]`, "200 <kind>",
			` | 299 - "json patch duplicate field \"[0].op\"" | 299 - "json patch unknown field \"[0].extra\"" | 299 - "unknown field \"spec.bogus\""`,
			`422 Invalid:  "" is invalid: patch: Invalid value: "{…}": strict decoding error: json patch duplicate field "[0].op", ` +
				`json patch unknown field "[0].extra", unknown field "spec.bogus" [patch: FieldValueInvalid]`},
		{"merge patch", http.MethodPatch, "/w", mergePatch, `{"spec":{"bogus":1},"wrong":2,"wrong":2}`, "200 <kind>",
			patched, `422 Invalid:  "" is invalid: patch: Invalid value: "{…}"` + refused},
		{"strategic patch", http.MethodPatch, "/w", strategicPatch, `{"spec":{"bogus":1},"wrong":2,"wrong":2}`, "200 <kind>",
			patched, `422 Invalid:  "" is invalid: patch: Invalid value: "map[spec:map[bogus:1] wrong:2]"` + refused},
		{"apply", http.MethodPatch, "/w", applyPatch, "apiVersion: <gv>\nkind: <kind>\nmetadata:\n  name: w\n  name: w\nspec: <spec>\n", "200 <kind>",
			` | 299 - "line 5: key \"name\" already set in map"`,
			"400 BadRequest: error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n" + `  line 5: key "name" already set in map`},
	} {
		for directive, want := range map[string]string{"": tc.ok + tc.warnings, "Warn": tc.ok + tc.warnings, "Ignore": tc.ok, "Strict": tc.strict} {
			path := tc.path + "?dryRun=All&fieldManager=m&fieldValidation=" + directive
			exchange{tc.name + " " + directive, tc.method, path, tc.contentType, tc.body, want}.check(t, wires)
		}
	}
	for _, x := range []exchange{
		{name: "unknown directive on create", method: http.MethodPost, path: "?fieldValidation=Sometimes", body: wireObject(`{"name":"x"}`, ""),
			want: `422 Invalid: CreateOptions.meta.k8s.io "" is invalid: fieldValidation: Unsupported value: "Sometimes": supported values: "", "Ignore", ` +
				`"Strict", "Warn" (meta.k8s.io CreateOptions) [fieldValidation: FieldValueNotSupported]`},
		{name: "unknown directive on update", method: http.MethodPut, path: "/w?fieldValidation=Sometimes", body: wireObject(`{"name":"w"}`, ""),
			want: `422 Invalid: UpdateOptions.meta.k8s.io "" is invalid: fieldValidation: Unsupported value: "Sometimes": supported values: "", "Ignore", ` +
				`"Strict", "Warn" (meta.k8s.io UpdateOptions) [fieldValidation: FieldValueNotSupported]`},
		{name: "unknown directive on patch", method: http.MethodPatch, path: "/w?fieldValidation=Sometimes", contentType: mergePatch, body: `{}`,
			want: `422 Invalid: PatchOptions.meta.k8s.io "" is invalid: fieldValidation: Unsupported value: "Sometimes": supported values: "", "Ignore", ` +
				`"Strict", "Warn" (meta.k8s.io PatchOptions) [fieldValidation: FieldValueNotSupported]`},
		{name: "unknown directive on apply", method: http.MethodPatch, path: "/w?fieldManager=m&fieldValidation=Sometimes", contentType: applyPatch, body: `{}`,
			want: `422 Invalid: PatchOptions.meta.k8s.io "" is invalid: fieldValidation: Unsupported value: "Sometimes": supported values: "", "Ignore", ` +
				`"Strict", "Warn" (meta.k8s.io PatchOptions) [fieldValidation: FieldValueNotSupported]`},
	} {
		x.check(t, wires)
	}
	check()
}
