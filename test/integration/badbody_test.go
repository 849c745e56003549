// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
)

// deep is JSON of 20,000 levels.
var deep = strings.Repeat("[", 20000) + strings.Repeat("]", 20000)

// What a client is told about a body, in the words of wire.
const (
	unrecognized = `400 BadRequest: the object provided is unrecognized (must be of type <kind>): `
	noJSON       = unrecognized + `couldn't get version/kind; json parse error: `
	mismatch     = `400 BadRequest: <kind> in version "v1" cannot be handled as a <kind>: `
	tooLarge     = `413 RequestEntityTooLarge: Request entity too large: limit is 3145728`
	unsupported  = `415 UnsupportedMediaType: the body of the request was in an unknown format - accepted media types include: ` +
		`application/json, application/yaml, application/vnd.kubernetes.protobuf…`
)

// TestEngineBadBody: a body that is no object of the resource gets a 4xx that says what is wrong with it, as any
// resource does; nothing is stored and the server goes on.
func TestEngineBadBody(t *testing.T) {
	wires := asBuiltIn(t, adminConfig(t, shared), newNamespace(t, shared))
	for _, w := range wires {
		w.must(t, http.StatusCreated, http.MethodPost, "", jsonType, wireObject(`{"name":"w"}`, ""))
	}
	check, healthy := unchanged(t, wires), quiet(t)
	const yamlType, protobufType = runtime.ContentTypeYAML, runtime.ContentTypeProtobuf
	for _, x := range []exchange{
		{name: "empty", body: ``, want: noJSON + `unexpected end of JSON input (…)`},
		{name: "malformed", body: `{"apiVersion":`, want: noJSON + `unexpected end of JSON input (…)`},
		{name: "text", body: `hello`, want: noJSON + `invalid character 'h' looking for beginning of value (…)`},
		{name: "null", body: `null`,
			want: `422 Invalid: <groupKind> "" is invalid: [metadata.name: Required value: name or generateName is required, spec…] (<group> <kind>) ` +
				`[metadata.name: FieldValueRequired, spec…]`},
		{name: "string", body: `"hello"`, want: noJSON + `json: cannot unmarshal string into Go value of type struct … (…)`},
		{name: "number", body: `7`, want: noJSON + `json: cannot unmarshal number into Go value of type struct … (…)`},
		{name: "array", body: `[` + wireObject(`{"name":"x"}`, "") + `]`, want: noJSON + `json: cannot unmarshal array into Go value of type struct … (…)`},
		{name: "empty object", body: `{}`,
			want: `422 Invalid: <groupKind> "" is invalid: [metadata.name: Required value: name or generateName is required, spec…] (<group> <kind>) ` +
				`[metadata.name: FieldValueRequired, spec…]`},
		{name: "other kind", body: `{"apiVersion":"<gv>","kind":"Other","metadata":{"name":"x"}}`,
			want: `400 BadRequest: Other in version "v1" cannot be handled as a <kind>: no kind "Other" is registered for version "<gv>" in scheme …`},
		{name: "other group", body: `{"apiVersion":"other.example.com/v1","kind":"<kind>","metadata":{"name":"x"}}`,
			want: mismatch + `no kind "<kind>" is registered for version "other.example.com/v1" in scheme …`},
		{name: "other version", body: `{"apiVersion":"<group>/v7","kind":"<kind>","metadata":{"name":"x"}}`,
			want: `400 BadRequest: <kind> in version "v7" cannot be handled as a <kind>: no kind "<kind>" is registered for version "<group>/v7" in scheme …`},
		{name: "kind is a number", body: `{"apiVersion":"<gv>","kind":7,"metadata":{"name":"x"}}`, want: noJSON + `json: cannot unmarshal number into Go struct field .kind of type string (…)`},
		{name: "list of objects", body: `{"apiVersion":"<gv>","kind":"<kind>List","items":[` + wireObject(`{"name":"x"}`, "") + `]}`,
			want: `400 BadRequest: <kind>List in version "v1" cannot be handled as a <kind>: converting (v1.<kind>List) to (….<kind>): unknown conversion`},
		{name: "metadata is a string", body: `{"apiVersion":"<gv>","kind":"<kind>","metadata":"x"}`,
			want: mismatch + `json: cannot unmarshal string into Go struct field <kind>.metadata of type v1.ObjectMeta`},
		{name: "spec is an array", body: `{"apiVersion":"<gv>","kind":"<kind>","metadata":{"name":"x"},"spec":[]}`,
			want: mismatch + `json: cannot unmarshal array into Go struct field <kind>.spec of type v1.<kind>Spec`},
		{name: "string for number", body: `{"apiVersion":"<gv>","kind":"<kind>","metadata":{"name":"x"},"spec":{<number:>"ten"<:number>}}`,
			want: mismatch + `json: cannot unmarshal string into Go struct field <kindSpec>.spec.<number> of type int32`},
		{name: "fraction for number", body: `{"apiVersion":"<gv>","kind":"<kind>","metadata":{"name":"x"},"spec":{<number:>1.5<:number>}}`,
			want: mismatch + `json: cannot unmarshal number 1.5 into Go struct field <kindSpec>.spec.<number> of type int32`},
		{name: "number beyond 32 bits", body: `{"apiVersion":"<gv>","kind":"<kind>","metadata":{"name":"x"},"spec":{<number:>2147483648<:number>}}`,
			want: mismatch + `json: cannot unmarshal number 2147483648 into Go struct field <kindSpec>.spec.<number> of type int32`},
		{name: "number beyond 64 bits", body: `{"apiVersion":"<gv>","kind":"<kind>","metadata":{"name":"x"},"spec":{<number:>92233720368547758080<:number>}}`,
			want: mismatch + `json: cannot unmarshal number 92233720368547758080 into Go struct field <kindSpec>.spec.<number> of type int32`},
		{name: "time that is none", body: wireObject(`{"name":"x","creationTimestamp":"yesterday"}`, ""),
			want: mismatch + `parsing time "yesterday" as "2006-01-02T15:04:05Z07:00": cannot parse "yesterday" as "2006"`},
		{name: "deep", body: `{"apiVersion":"<gv>","kind":"<kind>","metadata":{"name":"x"},"spec":` + deep + `}`, want: noJSON + `invalid character '[' exceeded max depth (…)`},
		{name: "deep in an unknown field", body: wireObject(`{"name":"x"}`, `,"unknown":`+deep), want: noJSON + `invalid character '[' exceeded max depth (…)`},
		{name: "deep where nobody looks", path: "?fieldValidation=Ignore", body: wireObject(`{"name":"x"}`, `,"unknown":`+deep), want: noJSON + `invalid character '[' exceeded max depth (…)`},
		{name: "two objects", body: wireObject(`{"name":"x"}`, "") + wireObject(`{"name":"y"}`, ""), want: noJSON + `invalid character '{' after top-level value (…)`},
		{name: "invalid UTF-8", body: wireObject("{\"name\":\"\xff\xfe\"}", ""),
			want: "422 Invalid: <groupKind> \"\ufffd\ufffd\" is invalid: metadata.name: Invalid value: \"\ufffd\ufffd\": … (<group> <kind> \ufffd\ufffd) [metadata.name: FieldValueInvalid]"},
		{name: "4 MiB", body: wireObject(`{"name":"x","annotations":{"a":"`+strings.Repeat("x", 4<<20)+`"}}`, ""), want: tooLarge},

		{name: "yaml malformed", contentType: yamlType, body: "a: [b", want: unrecognized + `yaml: line 1: did not find expected ',' or ']' (…)`},
		{name: "yaml text", contentType: yamlType, body: "hello", want: noJSON + `json: cannot unmarshal string into Go value of type struct … (…)`},
		{name: "yaml tab", contentType: yamlType, body: "apiVersion: <gv>\n\tkind: <kind>\n", want: unrecognized + `yaml: line 2: found a tab character that violates indentation (…)`},
		{name: "yaml invalid UTF-8", contentType: yamlType, body: "apiVersion: <gv>\nkind: <kind>\nmetadata: {name: \"\xff\xfe\"}\n",
			want: unrecognized + `yaml: invalid leading UTF-8 octet (…)`},
		{name: "yaml deep", contentType: yamlType, body: "apiVersion: <gv>\nkind: <kind>\nspec: " + deep, want: unrecognized + `yaml: line 3: exceeded max depth of 10000 (…)`},

		{name: "protobuf of text", contentType: protobufType, body: "hello", want: unrecognized + `provided data does not appear to be a protobuf message, expected prefix [107 56 115 0] (…)`},
		{name: "protobuf of its prefix only", contentType: protobufType, body: "k8s\x00", want: unrecognized + `empty body (…)`},
		{name: "protobuf of garbage", contentType: protobufType, body: "k8s\x00" + strings.Repeat("\xff", 64), want: unrecognized + `proto: integer overflow (…)`},

		{name: "no Content-Type", contentType: "none", body: wireObject(`{}`, ""), want: invalidName},
		{name: "unknown Content-Type", contentType: "text/html", body: wireObject(`{"name":"x"}`, ""), want: unsupported},
		{name: "malformed Content-Type", contentType: ";;", body: wireObject(`{"name":"x"}`, ""), want: unsupported},
		{name: "Content-Type of a patch", contentType: mergePatch, body: wireObject(`{"name":"x"}`, ""), want: unsupported},
	} {
		x.method = http.MethodPost
		switch x.contentType {
		case "":
			x.contentType = jsonType
		case "none":
			x.contentType = ""
		}
		x.check(t, wires)
	}
	check()
	healthy()
}

// TestEngineBadBodyOfChange: so it is with the bodies of updates, patches and deletions.
func TestEngineBadBodyOfChange(t *testing.T) {
	wires := asBuiltIn(t, adminConfig(t, shared), newNamespace(t, shared))
	for _, w := range wires {
		w.must(t, http.StatusCreated, http.MethodPost, "", jsonType, wireObject(`{"name":"w"}`, ""))
	}
	check, healthy := unchanged(t, wires), quiet(t)
	for _, x := range []exchange{
		{name: "update with an empty body", method: http.MethodPut, contentType: jsonType, want: noJSON + `unexpected end of JSON input (…)`},
		{name: "update with another kind", method: http.MethodPut, contentType: jsonType, body: `{"apiVersion":"<gv>","kind":"Other","metadata":{"name":"w"}}`,
			want: `400 BadRequest: Other in version "v1" cannot be handled as a <kind>: no kind "Other" is registered for version "<gv>" in scheme …`},
		{name: "update with another version", method: http.MethodPut, contentType: jsonType, body: `{"apiVersion":"<group>/v7","kind":"<kind>","metadata":{"name":"w"}}`,
			want: `400 BadRequest: <kind> in version "v7" cannot be handled as a <kind>: no kind "<kind>" is registered for version "<group>/v7" in scheme …`},
		{name: "update of the status with another kind", path: "/w/status", method: http.MethodPut, contentType: jsonType, body: `{"apiVersion":"<gv>","kind":"Other","metadata":{"name":"w"}}`,
			want: `400 BadRequest: Other in version "v1" cannot be handled as a <kind>: no kind "Other" is registered for version "<gv>" in scheme …`},
		{name: "update of unknown Content-Type", method: http.MethodPut, contentType: "text/html", body: wireObject(`{"name":"w"}`, ""), want: unsupported},
		{name: "update with 4 MiB", method: http.MethodPut, contentType: jsonType, body: wireObject(`{"name":"w","annotations":{"a":"`+strings.Repeat("x", 4<<20)+`"}}`, ""), want: tooLarge},
		{name: "deep json patch", method: http.MethodPatch, contentType: jsonPatch, body: `[{"op":"add","path":"/spec/unknown","value":` + deep + `}]`,
			want: `400 BadRequest: error decoding patch: invalid character '[' exceeded max depth`},
		{name: "deep merge patch", method: http.MethodPatch, contentType: mergePatch, body: `{"spec":{"unknown":` + deep + `}}`,
			want: `400 BadRequest: error decoding patch: invalid character '[' exceeded max depth`},
		{name: "deep strategic patch", method: http.MethodPatch, contentType: strategicPatch, body: `{"spec":{"unknown":` + deep + `}}`,
			want: `400 BadRequest: invalid character '[' exceeded max depth`},
		{name: "deep apply patch", method: http.MethodPatch, path: "/w?fieldManager=m", contentType: applyPatch, body: `{"spec":{"unknown":` + deep + `}}`,
			want: `400 BadRequest: error decoding YAML: error converting YAML to JSON: yaml: exceeded max depth of 10000`},
		{name: "merge patch of 4 MiB", method: http.MethodPatch, contentType: mergePatch, body: `{"metadata":{"annotations":{"a":"` + strings.Repeat("x", 4<<20) + `"}}}`, want: tooLarge},
		{name: "delete with a malformed body", method: http.MethodDelete, contentType: jsonType, body: `{`,
			want: `400 BadRequest: couldn't get version/kind; json parse error: unexpected end of JSON input`},
		{name: "delete with another kind", method: http.MethodDelete, contentType: jsonType, body: `{"apiVersion":"v1","kind":"Pod"}`,
			want: `400 BadRequest: no kind "Pod" is registered for version "v1" in scheme …`},
		{name: "delete with an array", method: http.MethodDelete, contentType: jsonType, body: `[]`,
			want: `400 BadRequest: couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value of type struct …`},
		{name: "delete of unknown Content-Type", method: http.MethodDelete, contentType: "text/html", body: `{}`, want: unsupported},
		{name: "delete with 4 MiB", method: http.MethodDelete, contentType: jsonType, body: `{"kind":"DeleteOptions","apiVersion":"v1","dryRun":["` + strings.Repeat("x", 4<<20) + `"]}`,
			want: tooLarge},
	} {
		if x.path == "" {
			x.path = "/w"
		}
		x.check(t, wires)
	}
	check()
	healthy()
}

// TestEngineBodyLimit: a body of 3 MiB is read, one of a byte more is not, as with every resource.
func TestEngineBodyLimit(t *testing.T) {
	for resource, w := range asBuiltIn(t, adminConfig(t, shared), newNamespace(t, shared)) {
		t.Run(resource, func(t *testing.T) {
			body := w.fill.Replace(wireObject(`{"name":"x"}`, ""))
			body += strings.Repeat(" ", 3<<20-len(body))
			if got, want := w.send(t, http.MethodPost, "?dryRun=All", jsonType, body).String(), "201 <kind>"; got != want {
				t.Errorf("create with a body of 3 MiB: got %s, want %s", got, want)
			}
			if got := w.send(t, http.MethodPost, "?dryRun=All", jsonType, body+" ").String(); got != tooLarge {
				t.Errorf("create with a body of a byte more: got %s, want %s", got, tooLarge)
			}
		})
	}
}

// quiet returns a check that our server has not panicked since: the library recovers from a panic in a request, and logs it.
func quiet(t *testing.T) func() {
	t.Helper()
	path := filepath.Join(shared.Dir, "logs", shared.Servers[0].Name+".log")
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		after, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if i := bytes.Index(after[len(before):], []byte("panic")); i >= 0 {
			t.Errorf("our server panicked:\n%s", after[len(before)+i:])
		}
		if err := shared.Failure(); err != nil {
			t.Errorf("a process ended: %v", err)
		}
	}
}
