// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	v1 "example.com/extension-apiserver/test/fixture/api/v1"
)

// specOf writes the spec of an engine in short: model, grade, replicas/maxReplicas and the parts.
func specOf(t *testing.T, obj *unstructured.Unstructured) string {
	t.Helper()
	var engine v1.Engine
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, &engine); err != nil {
		t.Fatal(err)
	}
	number := func(n *int32) string {
		if n == nil {
			return "none"
		}
		return fmt.Sprint(*n)
	}
	spec := engine.Spec
	s := fmt.Sprintf("%s %s %s/%s", spec.Model, spec.Grade, number(spec.Replicas), number(spec.MaxReplicas))
	for _, part := range spec.Parts {
		s += strings.TrimSuffix(fmt.Sprintf(", %s %s %s", number(part.Quantity), part.Material, part.Name), " ")
	}
	return strings.ReplaceAll(s, "  ", " ")
}

// TestEnginePatch: what each kind of patch makes of a spec. A strategic merge patch finds the parts of an engine by their
// names, the others do not; what a patch removes gets its default again.
func TestEnginePatch(t *testing.T) {
	w := engineWire(t, adminConfig(t, shared), newNamespace(t, shared))
	const before = `{"model":"m","grade":"Premium","replicas":2,"maxReplicas":5,"parts":[{"name":"frame","material":"oak"},{"name":"screw","quantity":12}]}`
	for i, tc := range []struct{ name, contentType, patch, want string }{
		{"json add", jsonPatch, `[{"op":"add","path":"/spec/parts/-","value":{"name":"dial"}}]`, "m Premium 2/5, 1 oak frame, 12 screw, 1 dial"},
		{"json insert", jsonPatch, `[{"op":"add","path":"/spec/parts/1","value":{"name":"dial"}}]`, "m Premium 2/5, 1 oak frame, 1 dial, 12 screw"},
		{"json replace", jsonPatch, `[{"op":"replace","path":"/spec/parts/1/quantity","value":13}]`, "m Premium 2/5, 1 oak frame, 13 screw"},
		{"json remove", jsonPatch, `[{"op":"remove","path":"/spec/parts/0"},{"op":"remove","path":"/spec/grade"}]`, "m Standard 2/5, 12 screw"},
		{"json move", jsonPatch, `[{"op":"move","from":"/spec/parts/0","path":"/spec/parts/1"}]`, "m Premium 2/5, 12 screw, 1 oak frame"},
		{"json copy", jsonPatch, `[{"op":"copy","from":"/spec/replicas","path":"/spec/maxReplicas"}]`, "m Premium 2/2, 1 oak frame, 12 screw"},
		{"json test", jsonPatch, `[{"op":"test","path":"/spec/replicas","value":2},{"op":"replace","path":"/spec/replicas","value":3}]`, "m Premium 3/5, 1 oak frame, 12 screw"},
		{"json of 10000 operations", jsonPatch, `[` + strings.Repeat(`{"op":"test","path":"/spec/replicas","value":2},`, 9999) + `{"op":"replace","path":"/spec/replicas","value":3}]`,
			"m Premium 3/5, 1 oak frame, 12 screw"},

		{"merge sets", mergePatch, `{"spec":{"replicas":3}}`, "m Premium 3/5, 1 oak frame, 12 screw"},
		{"merge removes", mergePatch, `{"spec":{"grade":null,"replicas":null,"maxReplicas":null}}`, "m Standard 1/none, 1 oak frame, 12 screw"},
		{"merge replaces lists", mergePatch, `{"spec":{"parts":[{"name":"screw"}]}}`, "m Premium 2/5, 1 screw"},
		{"merge removes the list", mergePatch, `{"spec":{"parts":null}}`, "m Premium 2/5"},

		{"strategic sets", strategicPatch, `{"spec":{"replicas":3}}`, "m Premium 3/5, 1 oak frame, 12 screw"},
		{"strategic removes", strategicPatch, `{"spec":{"grade":null,"parts":[{"name":"frame","material":null}]}}`, "m Standard 2/5, 1 frame, 12 screw"},
		{"strategic finds a part", strategicPatch, `{"spec":{"parts":[{"name":"screw","material":"steel"}]}}`, "m Premium 2/5, 1 oak frame, 12 steel screw"},
		{"strategic adds a part", strategicPatch, `{"spec":{"parts":[{"name":"dial"}]}}`, "m Premium 2/5, 1 dial, 1 oak frame, 12 screw"},
		{"strategic deletes a part", strategicPatch, `{"spec":{"parts":[{"name":"frame","$patch":"delete"}]}}`, "m Premium 2/5, 12 screw"},
		{"strategic deletes what is not there", strategicPatch, `{"spec":{"parts":[{"name":"dial","$patch":"delete"}]}}`, "m Premium 2/5, 1 oak frame, 12 screw"},
		{"strategic replaces the list", strategicPatch, `{"spec":{"parts":[{"$patch":"replace"},{"name":"dial"}]}}`, "m Premium 2/5, 1 dial"},
		{"strategic replaces the spec", strategicPatch, `{"spec":{"$patch":"replace","model":"m"}}`, "m Standard 1/none"},
		{"strategic orders", strategicPatch, `{"spec":{"$setElementOrder/parts":[{"name":"screw"},{"name":"dial"},{"name":"frame"}],"parts":[{"name":"dial"}]}}`,
			"m Premium 2/5, 12 screw, 1 dial, 1 oak frame"},
		{"strategic retains", strategicPatch, `{"spec":{"$retainKeys":["model","replicas"],"replicas":3}}`, "m Standard 3/none"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			name := fmt.Sprintf("w%d", i)
			w.must(t, http.StatusCreated, http.MethodPost, "", jsonType, `{"apiVersion":"<gv>","kind":"<kind>","metadata":{"name":"`+name+`"},"spec":`+before+`}`)
			got := w.must(t, http.StatusOK, http.MethodPatch, "/"+name, tc.contentType, tc.patch)
			if spec := specOf(t, got); spec != tc.want {
				t.Errorf("got  %s\nwant %s", spec, tc.want)
			}
		})
	}
}

// TestEnginePatchStatus: a strategic merge patch of the status finds conditions by their type, so that two controllers can
// report without knowing of each other.
func TestEnginePatchStatus(t *testing.T) {
	w := engineWire(t, adminConfig(t, shared), newNamespace(t, shared))
	w.must(t, http.StatusCreated, http.MethodPost, "", jsonType, wireObject(`{"name":"w"}`, ""))
	condition := func(kind, status string) string {
		return fmt.Sprintf(`{"type":%q,"status":%q,"reason":"Seen","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}`, kind, status)
	}
	for _, tc := range []struct{ name, contentType, patch, want string }{
		{"first", strategicPatch, `{"status":{"conditions":[` + condition("Ready", "True") + `]}}`, `[Ready=True]`},
		{"another", strategicPatch, `{"status":{"conditions":[` + condition("Painted", "True") + `]}}`, `[Painted=True Ready=True]`},
		{"changed", strategicPatch, `{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`, `[Painted=True Ready=False]`},
		{"deleted", strategicPatch, `{"status":{"conditions":[{"type":"Painted","$patch":"delete"}]}}`, `[Ready=False]`},
		{"replaced", mergePatch, `{"status":{"conditions":[` + condition("Sold", "True") + `]}}`, `[Sold=True]`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			list, _, _ := unstructured.NestedSlice(w.must(t, http.StatusOK, http.MethodPatch, "/w/status", tc.contentType, tc.patch).Object, "status", "conditions")
			for _, item := range list {
				got = append(got, fmt.Sprintf("%s=%s", item.(map[string]any)["type"], item.(map[string]any)["status"]))
			}
			if fmt.Sprint(got) != tc.want {
				t.Errorf("conditions: got %v, want %s", got, tc.want)
			}
		})
	}
}

// TestEnginePatchNothing: a patch that changes nothing writes nothing.
func TestEnginePatchNothing(t *testing.T) {
	wires := asBuiltIn(t, adminConfig(t, shared), newNamespace(t, shared))
	for _, w := range wires {
		w.must(t, http.StatusCreated, http.MethodPost, "", jsonType, wireObject(`{"name":"w","labels":{"a":"b"}}`, ""))
		w.must(t, http.StatusOK, http.MethodPatch, "/w?fieldManager=m", applyPatch, wireObject(`{"name":"w","labels":{"a":"b"}}`, ""))
	}
	check := unchanged(t, wires)
	for _, x := range []exchange{
		{name: "json", contentType: jsonPatch, body: `[{"op":"replace","path":"/metadata/labels/a","value":"b"}]`},
		{name: "json empty", contentType: jsonPatch, body: `[]`},
		{name: "merge", contentType: mergePatch, body: `{"metadata":{"labels":{"a":"b","c":null}}}`},
		{name: "strategic", contentType: strategicPatch, body: `{"metadata":{"labels":{"a":"b"}}}`},
		{name: "apply", contentType: applyPatch, path: "/w?fieldManager=m", body: wireObject(`{"name":"w","labels":{"a":"b"}}`, "")},
		{name: "status", contentType: mergePatch, path: "/w/status", body: `{"metadata":{"labels":{"a":"b"}}}`},
	} {
		x.method, x.path, x.want = http.MethodPatch, cmp.Or(x.path, "/w"), "200 <kind>"
		x.check(t, wires)
	}
	check()
}
