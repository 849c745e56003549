// SPDX-License-Identifier: Apache-2.0

package direct

import (
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

const (
	jsonType  = runtime.ContentTypeJSON
	yamlType  = runtime.ContentTypeYAML
	protoType = runtime.ContentTypeProtobuf
	jsonPatch = string(types.JSONPatchType)
	merge     = string(types.MergePatchType)
	apply     = string(types.ApplyYAMLPatchType)
	// strict rejects unknown and duplicate fields. force has the parameters that an apply needs.
	strict = "?fieldValidation=Strict"
	force  = "?fieldManager=bomber&force=true"
)

// bomb is a small body that is expensive to decode.
type bomb struct {
	name, method, path, contentType, body string
	header                                http.Header
	want                                  string // allowed status codes, "400 413"
}

// laughs returns YAML of 9 levels, each of which refers to the one below nine times: 9^9 values
// (CVE-2019-11253).
func laughs(prefix string) string {
	var b strings.Builder
	b.WriteString(prefix + "a0: &a0 [\"lol\",\"lol\",\"lol\",\"lol\",\"lol\",\"lol\",\"lol\",\"lol\",\"lol\"]\n")
	for i := 1; i < 9; i++ {
		fmt.Fprintf(&b, "%sa%d: &a%d [%s]\n", prefix, i, i,
			strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i-1), 9), ","))
	}
	return b.String()
}

// copies returns a JSON patch that copies the annotations into themselves n times. Each copy
// doubles them.
func copies(n int) string {
	var b strings.Builder
	b.WriteString(`[{"op":"add","path":"/metadata/annotations","value":{"a":"` + strings.Repeat("x", 1000) + `"}}`)
	for i := range n {
		fmt.Fprintf(&b, `,{"op":"copy","from":"/metadata/annotations","path":"/metadata/annotations/c%d"}`, i)
	}
	return b.String() + "]"
}

// zeros returns so many MiB of zeros, compressed to a thousandth.
func zeros(t *testing.T, mebibytes int) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	for range mebibytes {
		if _, err := w.Write(make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func bombs(t *testing.T) []bomb {
	const head = `"apiVersion":"workshop.example.com/v1","kind":"Gadget"`
	const yamlHead = "apiVersion: workshop.example.com/v1\nkind: Gadget\nmetadata: {name: bomb}\n"
	const post, patch, there, bombPath = http.MethodPost, http.MethodPatch, protected + "/there", protected + "/bomb"
	deep := strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000)
	objects := strings.Repeat(`{"a":`, 100_000) + "1" + strings.Repeat("}", 100_000)
	digits := "1" + strings.Repeat("0", 1000)
	of := func(spec string) string { return "{" + head + `,"metadata":{"name":"bomb"},"spec":` + spec + `}` }
	return []bomb{
		{"YAML of aliases", post, protected, yamlType, yamlHead + "spec:\n" + laughs("  "), nil, "400"},
		{"YAML of aliases in an ignored body", post, protected + "?fieldValidation=Ignore", yamlType, yamlHead +
			"spec: {purpose: none}\n" + laughs(""), nil, "400"},
		{"YAML of aliases, applied", patch, bombPath + force, apply, yamlHead + "spec: {purpose: none}\n" +
			laughs(""), nil, "400"},
		{"YAML of aliases, applied to an existing object", patch, there + force, apply,
			strings.Replace(yamlHead, "bomb", "there", 1) + laughs(""), nil, "400"},
		{"YAML of 170,000 aliases of one text", post, protected, yamlType,
			yamlHead + "spec: {purpose: &x " + strings.Repeat("x", 1000) + "}\nmore: [" +
				strings.Repeat("*x,", 170_000) + "]\n", nil, "400"},
		{"YAML of 50,000 aliases of one text, applied", patch, bombPath + force, apply,
			yamlHead + "spec: {purpose: &x " + strings.Repeat("x", 300_000) + "}\nmore: [" +
				strings.Repeat("*x,", 50_000) + "]\n", nil, "400"},
		{"YAML of 520,000 values and an alias", post, protected + strict, yamlType,
			yamlHead + "spec: {purpose: &x none}\nmore: [*x," + strings.Repeat("x,", 520_000) + "]\n", nil, "413"},
		{"YAML of 520,000 values", post, protected + strict, yamlType, yamlHead + "spec: {purpose: none}\nmore: [" +
			strings.Repeat("x,", 520_000) + "]\n", nil, "413"},
		{"YAML of 520,000 values, applied", patch, bombPath + force, apply, yamlHead +
			"spec: {purpose: none}\nmore: [" + strings.Repeat("x,", 520_000) + "]\n", nil, "413"},
		{"JSON of 520,000 values, applied", patch, bombPath + force, apply,
			of(`{"purpose":"none","more":[1` + strings.Repeat(",1", 520_000) + `]}`), nil, "413"},
		{"YAML of 1,500,000 values", post, protected, yamlType, yamlHead + "more: [" + strings.Repeat("x,", 1_500_000) +
			"]\n", nil, "413"},
		{"YAML of 1,500,000 values, applied", patch, bombPath + force, apply, yamlHead + "more: [" +
			strings.Repeat("x,", 1_500_000) + "]\n", nil, "413"},
		{"YAML 100,000 deep, applied", patch, bombPath + force, apply, yamlHead + "spec: " + deep, nil, "400"},
		{"YAML 100,000 deep in blocks", post, protected, yamlType, yamlHead + "spec: " + strings.Repeat("- ", 100_000) +
			"1\n", nil, "400"},
		{"JSON 100,000 deep", post, protected, jsonType, of(objects), nil, "400"},
		{"JSON 100,000 deep in an ignored body", post, protected + "?fieldValidation=Ignore", jsonType,
			of(`{"purpose":"none","x":` + deep + `}`), nil, "400"},
		{"merge patch 100,000 deep", patch, there, merge, `{"spec":` + objects + `}`, nil, "400 422"},
		{"JSON patch with a value 100,000 deep", patch, there, jsonPatch, `[{"op":"add","path":"/spec/x","value":` +
			deep + `}]`, nil, "400 422"},
		{"JSON patch with a path 100,000 deep", patch, there, jsonPatch, `[{"op":"add","path":"` +
			strings.Repeat("/a", 100_000) + `","value":1}]`, nil, "400 422"},
		{"JSON patch of 1,000,000 copies", patch, there, jsonPatch, copies(1_000_000), nil, "413"},
		{"JSON patch of 10,001 operations", patch, there, jsonPatch, "[" +
			strings.Repeat(`{"op":"test","path":"/kind","value":"Gadget"},`, 10_000) +
			`{"op":"test","path":"/kind","value":"Gadget"}]`, nil, "413"},
		{"JSON patch of 1,000 copies that double", patch, there, jsonPatch, copies(1000), nil, "413 422"},
		{"1e400 for a number", post, protected, jsonType, of(`{"purpose":"none","precision":1e400}`), nil, "400"},
		{"1e400 for the generation", post, protected, jsonType, "{" + head +
			`,"metadata":{"name":"bomb","generation":1e400},"spec":{"purpose":"none"}}`, nil, "400"},
		{"1e999999999 for a number", patch, there, merge, `{"spec":{"precision":1e999999999}}`, nil, "400 422"},
		{"a number of 1,000 digits", post, protected, jsonType,
			of(`{"purpose":"none","precision":` + digits + `}`), nil, "400"},
		{"a number of 500,000 digits in a YAML", patch, bombPath + force, apply,
			yamlHead + "spec: {purpose: none, precision: " + strings.Repeat("9", 500_000) + "}\n", nil, "400 422"},
		{"one field 100,000 times", post, protected + strict, jsonType,
			of(`{` + strings.Repeat(`"purpose":"none",`, 100_000) + `"precision":1}`), nil, "413"},
		{"100,000 unknown fields", post, protected + strict, jsonType,
			of(`{"purpose":"none"` + many(100_000) + `}`), nil, "413"},
		{"100 MiB in gzip", post, protected, jsonType, zeros(t, 100),
			http.Header{"Content-Encoding": {"gzip"}}, "400 415"},
		{"100 MiB in gzip, patched", patch, there, merge, zeros(t, 100),
			http.Header{"Content-Encoding": {"gzip"}}, "400 415"},
		{"protobuf with a declared size of 2 GiB", post, protected, protoType, "k8s\x00\x0a\xff\xff\xff\xff\x07", nil, "400"},
	}
}

func many(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"x%d":1`, i)
	}
	return b.String()
}

// TestS30Bombs checks that the server rejects a body that would expand in memory or time before it
// expands, even from a user with all permissions. It ignores the body of a read.
func TestS30Bombs(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.decide(t, func(authorizationv1.SubjectAccessReviewSpec) http.HandlerFunc { return reviewStatus(`"allowed":true`) })
	ann := s.keep(t, frontProxy(t))
	send := func(b bomb) response {
		header := http.Header{"X-Remote-User": {"ann"}, "Content-Type": {b.contentType}}
		maps.Copy(header, b.header)
		return ann.try(b.method, b.path, header, b.body)
	}
	// The same types of bodies succeed if nothing in them expands.
	for _, b := range []bomb{
		{"create", http.MethodPost, protected, jsonType, gadget("there"), nil, "201"},
		{"create from a YAML with the signs of an alias in a text", http.MethodPost, protected, yamlType,
			"apiVersion: workshop.example.com/v1\nkind: Gadget\nmetadata: {name: signs, annotations: {a: '&a " +
				"*a'}}\nspec: {purpose: none}\n", nil, "201"},
		{"apply", http.MethodPatch, protected + "/applied" + force, apply,
			"apiVersion: workshop.example.com/v1\nkind: Gadget\nmetadata: {name: applied}\nspec: {purpose: none}\n",
			nil, "201"},
		{"merge patch", http.MethodPatch, protected + "/there", merge, `{"spec":{"precision":1}}`, nil, "200"},
	} {
		if got := send(b); fmt.Sprint(got.status) != b.want {
			t.Fatalf("%s: %s, want %s", b.name, got, b.want)
		}
	}
	stored := s.get(t, frontProxy(t), http.Header{"X-Remote-User": {"ann"}}).body
	all := bombs(t)
	// Reads come first: the heap that writes leave would hide their memory.
	for _, b := range all {
		s.readBomb(t, b)
	}
	for _, b := range all {
		// Most take 10 to 100 ms and some MiB. 520,000 values of YAML take 1 s and 70 MiB, because
		// the library reads them three times. An expanded body takes minutes and gigabytes.
		check := s.costs(t, b.name, 5*time.Second, 150)
		if got := send(b); !strings.Contains(" "+b.want+" ", fmt.Sprintf(" %d ", got.status)) {
			t.Errorf("%s: %s, want %s", b.name, got, b.want)
		}
		check()
	}
	if after := s.get(t, frontProxy(t), http.Header{"X-Remote-User": {"ann"}}).body; after != stored {
		t.Errorf("gadgets afterwards: %.2000s\nwant those of before: %.2000s", after, stored)
	}
	if log := s.end(); strings.Contains(log, "panic") {
		t.Errorf("the log reports a panic: %.4000s", log[strings.Index(log, "panic"):])
	}
}

// readBomb sends the body with reads. If a client sends a body that is not read, it may find the
// connection closed.
func (s *server) readBomb(t *testing.T, b bomb) {
	t.Helper()
	header := http.Header{"Content-Type": {b.contentType}}
	maps.Copy(header, b.header)
	known := maps.Clone(header)
	known["X-Remote-User"] = []string{"ann"}
	for _, tc := range []struct {
		what, path string
		cert       *tls.Certificate
		header     http.Header
	}{
		{"GET /healthz without credentials", "/healthz", nil, header},
		{"GET " + protected, protected, frontProxy(t), known},
	} {
		check := s.costs(t, b.name+", "+tc.what, time.Second, 32)
		s.try(tc.cert, http.MethodGet, tc.path, tc.header, b.body).want(t, b.name+", "+tc.what, http.StatusOK)
		check()
	}
}
