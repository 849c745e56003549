// SPDX-License-Identifier: Apache-2.0

package patch

import (
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/yaml"
	kjson "sigs.k8s.io/json"
)

// object has a field of each kind that a project's type may have.
type object struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	embedded          `json:",inline"`

	Int32   int32   `json:"int32,omitempty"`
	Int64   *int64  `json:"int64,omitempty"`
	Uint8   uint8   `json:"uint8,omitempty"`
	Uint32  *uint32 `json:"uint32,omitempty"`
	Float32 float32 `json:"float32,omitempty"`
	Float64 float64 `json:"float64,omitempty"`
	Bool    *bool   `json:"bool,omitempty"`
	Text    text    `json:"text,omitempty"`

	Port intstr.IntOrString   `json:"port"`
	Size resource.Quantity    `json:"size"`
	At   *metav1.Time         `json:"at,omitempty"`
	Raw  runtime.RawExtension `json:"raw"`
	Data []byte               `json:"data,omitempty"`

	Labels map[string]string   `json:"labels,omitempty"`
	Limits map[string]int32    `json:"limits,omitempty"`
	Nested map[string]part     `json:"nested,omitempty"`
	Lists  map[string][]string `json:"lists,omitempty"`

	Parts    []part               `json:"parts,omitempty" patchStrategy:"merge" patchMergeKey:"name"`
	Required []*part              `json:"required" patchStrategy:"merge" patchMergeKey:"name"`
	Ports    []port               `json:"ports,omitempty" patchStrategy:"merge" patchMergeKey:"port"`
	Maps     []map[string]string  `json:"maps,omitempty" patchStrategy:"merge" patchMergeKey:"name"`
	Keyless  []part               `json:"keyless,omitempty" patchStrategy:"merge"`
	Set      []string             `json:"set,omitempty" patchStrategy:"merge"`
	Ints     []int32              `json:"ints,omitempty" patchStrategy:"merge"`
	Floats   []float64            `json:"floats,omitempty" patchStrategy:"merge"`
	Mixed    []intstr.IntOrString `json:"mixed,omitempty" patchStrategy:"merge"`

	Atomic []part                 `json:"atomic,omitempty"`
	Words  []string               `json:"words,omitempty"`
	Matrix [][]int32              `json:"matrix,omitempty"`
	Raws   []runtime.RawExtension `json:"raws,omitempty"`

	Spec        part                 `json:"spec"`
	ReplacedRaw runtime.RawExtension `json:"replacedRaw" patchStrategy:"replace"`
	Clamped     clamped              `json:"clamped,omitempty"`

	Replaced part  `json:"replaced" patchStrategy:"replace"`
	Retained *part `json:"retained,omitempty" patchStrategy:"retainKeys"`
}

type embedded struct {
	Inlined int8 `json:"inlined,omitempty"`
}

type text string

// clamped decodes JSON itself.
type clamped int32

func (c *clamped) UnmarshalJSON([]byte) error {
	*c = 100
	return nil
}

type part struct {
	Name  string            `json:"name,omitempty"`
	Count *int32            `json:"count,omitempty"`
	Tags  map[string]string `json:"tags,omitempty"`
	Parts []part            `json:"parts,omitempty" patchStrategy:"merge" patchMergeKey:"name"`
}

type port struct {
	Port int32  `json:"port"`
	Name string `json:"name,omitempty"`
}

var objectType = reflect.TypeFor[object]()

// fitting contains patches that are accepted.
var fitting = []string{
	`{}`, `null`, `{"unknown":{"$any":[[1]]}}`,
	`{"apiVersion":"v1","kind":"Object","metadata":{"name":"a","labels":{"a":"b"}}}`,
	`{"int32":2147483647}`, `{"int32":-2147483648}`, `{"int32":1.0}`, `{"int32":100e-2}`, `{"int32":0.001E+3}`,
	`{"int64":-15.0e1}`, `{"int32":-0.0e-500}`, `{"int32":null}`, `{"int64":9223372036854775807}`, `{"int64":1e3}`,
	`{"uint8":255}`, `{"uint32":4294967295}`, `{"float32":1.5}`, `{"float64":1e300}`, `{"float64":7}`, `{"bool":true}`,
	`{"text":"a"}`, `{"inlined":-128}`,
	`{"port":80}`, `{"port":"http"}`, `{"size":"1Gi"}`, `{"size":5}`, `{"at":"2026-01-01T00:00:00Z"}`,
	`{"raw":{"a":1}}`, `{"data":"aGk="}`, `{"data":[1,255]}`,
	`{"labels":{"a":null}}`, `{"labels":{"$patch":"replace","a":"b"}}`, `{"labels":{"$retainKeys":["a"],"a":"b"}}`,
	`{"labels":{"$other":"b"}}`,
	`{"limits":{"a":1}}`, `{"limits":{"$patch":"delete"}}`, `{"nested":{"a":null}}`,
	`{"nested":{"$patch":"replace","a":{"count":1}}}`,
	`{"nested":{"a":{"count":1}},"lists":{"a":["b"]},"matrix":[[1]],"raw":{"a":{"b":1}},"replacedRaw":[1]}`,
	`{"$patch":"replace","lists":{"a":["b"]},"matrix":[[1],[2,3]]}`,
	`{"parts":[]}`, `{"parts":[],"$setElementOrder/parts":[{"name":"a"}]}`,
	`{"parts":[{"name":"a","count":1,"parts":[{"name":"b"}]}]}`,
	`{"parts":[{"name":"a","$patch":"delete"},{"$patch":"replace"}]}`,
	`{"parts":[{"name":"b"},{"name":"a","$patch":"delete"}],"$setElementOrder/parts":[{"name":"c"},{"name":"b"}]}`,
	`{"$setElementOrder/parts":[]}`,
	`{"required":[{"name":"a"}],"$setElementOrder/required":[{"name":"a"}]}`, `{"ports":[{"port":80}]}`,
	`{"maps":[{"name":"a","b":"c"}]}`,
	`{"set":["a","b"],"$setElementOrder/set":["a","b"],"$deleteFromPrimitiveList/set":["c"]}`, `{"ints":[1,2]}`,
	`{"floats":[1.5]}`, `{"mixed":[1,"a"]}`,
	`{"words":["a",null]}`, `{"$deleteFromPrimitiveList/words":["a"]}`,
	`{"$deleteFromPrimitiveList/words":["a"],"words":null}`, `{"words":["a"],"$setElementOrder/words":["a"]}`,
	`{"atomic":[{"count":1},{}]}`, `{"raws":[{"a":{"b":1}}]}`,
	`{"spec":{"$patch":"replace","name":"a"}}`, `{"spec":{"$retainKeys":["name"],"name":"a","tags":null}}`,
	`{"spec":{"$patch":"replace"},"raw":null}`, `{"retained":{"$retainKeys":[]}}`, `{"replaced":{"name":"a"}}`,
}

// unfitting contains patches that are rejected with an error that names the field.
var unfitting = []struct{ patch, field string }{
	// Wrong kinds.
	{`{"metadata":[]}`, "metadata"}, {`{"metadata":{"labels":{"a":1}}}`, "metadata.labels[a]"},
	{`{"metadata":{"generation":"1"}}`, "metadata.generation"},
	{`{"spec":"a"}`, "spec"}, {`{"text":1}`, "text"}, {`{"bool":"true"}`, "bool"}, {`{"int32":"1"}`, "int32"},
	{`{"float64":"1"}`, "float64"},
	{`{"words":"a"}`, "words"}, {`{"words":[1]}`, "words[0]"}, {`{"atomic":[{"count":1},1]}`, "atomic[1]"},
	{`{"$patch":"replace","matrix":[[1],["a"]]}`, "matrix[1][0]"},
	{`{"$patch":"replace","matrix":[1]}`, "matrix[0]"},
	{`{"nested":{"$patch":"replace","a":{"count":"1"}}}`, "nested[a].count"}, {`{"lists":{"a":"b"}}`, "lists[a]"},
	{`{"spec":{"tags":{"a":{}}}}`, "spec.tags[a]"}, {`{"data":"?"}`, "data"}, {`{"data":[256]}`, "data[0]"},
	{`{"port":1.5}`, "port"}, {`{"port":{}}`, "port"}, {`{"size":"x"}`, "size"}, {`{"at":"yesterday"}`, "at"},
	{`{"at":1}`, "at"},
	// Numbers out of range.
	{`{"int32":2147483648}`, "int32"}, {`{"int32":4294967296}`, "int32"}, {`{"int32":-2147483649}`, "int32"},
	{`{"int32":1.5}`, "int32"}, {`{"int32":1e10}`, "int32"},
	{`{"int64":9223372036854775808}`, "int64"}, {`{"int64":-9223372036854775809}`, "int64"},
	{`{"int64":1e19}`, "int64"}, {`{"int64":9007199254740993.0}`, "int64"}, {`{"int64":0.5}`, "int64"},
	{`{"uint8":256}`, "uint8"}, {`{"uint8":-1}`, "uint8"}, {`{"uint32":-1}`, "uint32"},
	{`{"uint32":4294967296}`, "uint32"}, {`{"inlined":128}`, "inlined"},
	{`{"float32":1e39}`, "float32"}, {`{"port":4294967296}`, "port"}, {`{"limits":{"a":4294967296}}`, "limits[a]"},
	{`{"raw":{"a":18446744073709551615}}`, "raw.a"},
	{`{"parts":[{"name":"a","count":4294967296}]}`, "parts[0].count"},
	{`{"ports":[{"port":4294967296}]}`, "ports[0].port"}, {`{"ints":[4294967296]}`, "ints[0]"},
	{`{"int32":2.99999999999999999999}`, "int32"}, {`{"port":2.99999999999999999999}`, "port"},
	{`{"int64":4503599627370497.5}`, "int64"}, {`{"int32":1e-400}`, "int32"},
	{`{"limits":{"a":1.00000000000000000001}}`, "limits[a]"},
	{`{"parts":[{"name":"b"},{"name":"a","count":3.9999999999999999999}]}`, "parts[1].count"},
	// Merge keys.
	{`{"parts":[{"count":1}]}`, "parts[0].name"}, {`{"parts":[{"name":{"a":1}}]}`, "parts[0].name"},
	{`{"parts":[{"name":["a"]}]}`, "parts[0].name"}, {`{"parts":[{"name":null}]}`, "parts[0].name"},
	{`{"parts":[{"name":1}]}`, "parts[0].name"}, {`{"parts":[null]}`, "parts[0]"}, {`{"parts":[[]]}`, "parts[0]"},
	{`{"parts":["a"]}`, "parts[0]"}, {`{"parts":{"name":"a"}}`, "parts"},
	{`{"parts":[{"name":"a","parts":[{"count":1}]}]}`, "parts[0].parts[0].name"},
	{`{"parts":[{"$patch":"delete"}]}`, "parts[0].name"},
	{`{"parts":[{"$patch":"delete","name":[]}]}`, "parts[0].name"},
	{`{"parts":[{"$patch":"replace","name":"a"}]}`, "parts[0]"},
	{`{"required":[null]}`, "required[0]"}, {`{"ports":[{"port":80.0}]}`, "ports[0].port"},
	{`{"ports":[{"port":"80"}]}`, "ports[0].port"}, {`{"keyless":[{"name":"a"}]}`, "keyless"},
	{`{"maps":[{"a":"b"}]}`, "maps[0].name"}, {`{"maps":[{"name":{}}]}`, "maps[0].name"}, {`{"set":[null]}`, "set[0]"},
	{`{"set":[{}]}`, "set[0]"}, {`{"set":[1]}`, "set[0]"}, {`{"set":[["a"]]}`, "set[0]"},
	{`{"ints":[1.0]}`, "ints[0]"}, {`{"floats":[1]}`, "floats[0]"}, {`{"mixed":[{}]}`, "mixed[0]"},
	{`{"metadata":{"ownerReferences":[{"name":"a"}]}}`, "metadata.ownerReferences[0].uid"},
	{`{"metadata":{"finalizers":[{}]}}`, "metadata.finalizers[0]"},
	{`{"keyless":[]}`, "keyless"}, {`{"keyless":[{"$patch":"replace"}]}`, "keyless"},
	{`{"set":[{"$patch":"replace"}]}`, "set[0]"}, {`{"size":"1e-1000000000"}`, "size"},
	{`{"raw":{"$patch":"x"}}`, "raw.$patch"}, {`{"raw":{"$deleteFromPrimitiveList/a":5}}`,
		"raw.$deleteFromPrimitiveList/a"},
	{`{"clamped":4294967296}`, "clamped"},
	// $patch, and keys that are not directives.
	{`{"$patch":"merge"}`, "$patch"}, {`{"spec":{"$patch":1}}`, "spec.$patch"},
	{`{"spec":{"$patch":{"a":1}}}`, "spec.$patch"}, {`{"labels":{"$patch":"x"}}`, "labels.$patch"},
	{`{"parts":[{"name":"a","$patch":"merge"}]}`, "parts[0].$patch"},
	{`{"parts":[{"name":"a","$patch":[]}]}`, "parts[0].$patch"},
	{`{"parts":[{"$patch":null,"name":"a"}]}`, "parts[0].$patch"},
	{`{"$foo":1}`, "$foo"}, {`{"spec":{"$retain":[]}}`, "spec.$retain"},
	{`{"$setElementOrder":[]}`, "$setElementOrder"}, {`{"$setElementOrderparts":[]}`, "$setElementOrderparts"},
	{`{"labels":{"$setElementOrder/a":[]}}`, "labels.$setElementOrder/a"},
	{`{"labels":{"$deleteFromPrimitiveList":[]}}`, "labels.$deleteFromPrimitiveList"},
	// $retainKeys.
	{`{"spec":{"$retainKeys":"name"}}`, "spec.$retainKeys"}, {`{"spec":{"$retainKeys":null}}`, "spec.$retainKeys"},
	{`{"spec":{"$retainKeys":[{}]}}`, "spec.$retainKeys"},
	{`{"spec":{"$retainKeys":["count"],"name":"a"}}`, "spec.$retainKeys"},
	{`{"labels":{"$retainKeys":[["a"]]}}`, "labels.$retainKeys"},
	// $setElementOrder.
	{`{"$setElementOrder/parts":{}}`, "$setElementOrder/parts"},
	{`{"$setElementOrder/parts":null}`, "$setElementOrder/parts"},
	{`{"$setElementOrder/parts":[1]}`, "$setElementOrder/parts[0]"},
	{`{"$setElementOrder/parts":[{}]}`, "$setElementOrder/parts[0].name"},
	{`{"$setElementOrder/parts":[{"name":[]}]}`, "$setElementOrder/parts[0].name"},
	{`{"$setElementOrder/parts":[null]}`, "$setElementOrder/parts[0]"},
	{`{"$setElementOrder/unknown":[]}`, "$setElementOrder/unknown"},
	{`{"$setElementOrder/spec":[]}`, "$setElementOrder/spec"},
	{`{"$setElementOrder/data":[]}`, "$setElementOrder/data"},
	{`{"$setElementOrder/":[]}`, "$setElementOrder/"},
	{`{"$setElementOrder/atomic":[]}`, "$setElementOrder/atomic"},
	{`{"$setElementOrder/keyless":[]}`, "$setElementOrder/keyless"},
	{`{"$setElementOrder/matrix":[]}`, "$setElementOrder/matrix"},
	{`{"$setElementOrder/raws":[]}`, "$setElementOrder/raws"},
	{`{"$setElementOrder/set":[{}]}`, "$setElementOrder/set[0]"},
	{`{"$setElementOrder/set":[null]}`, "$setElementOrder/set[0]"},
	{`{"$setElementOrder/ints":[1.0]}`, "$setElementOrder/ints[0]"},
	{`{"$setElementOrder/parts":[{"name":"a"}],"parts":[{"name":"b"}]}`, "$setElementOrder/parts"},
	{`{"$setElementOrder/parts":[{"name":"a"}],"parts":null}`, "$setElementOrder/parts"},
	{`{"$setElementOrder/set":["a","b"],"set":["b","a"]}`, "$setElementOrder/set"},
	{`{"spec":{"$setElementOrder/parts":1}}`, "spec.$setElementOrder/parts"},
	{`{"parts":[{"name":"a","$setElementOrder/parts":[1]}]}`, "parts[0].$setElementOrder/parts[0]"},
	// $deleteFromPrimitiveList.
	{`{"$deleteFromPrimitiveList/words":[],"words":["a"]}`, "$deleteFromPrimitiveList/words"},
	{`{"$deleteFromPrimitiveList/set":["b","a"],"set":["a"]}`, "$deleteFromPrimitiveList/set[1]"},
	{`{"$deleteFromPrimitiveList/set":null}`, "$deleteFromPrimitiveList/set"},
	{`{"$deleteFromPrimitiveList/set":"a"}`, "$deleteFromPrimitiveList/set"},
	{`{"$deleteFromPrimitiveList/set":[{}]}`, "$deleteFromPrimitiveList/set[0]"},
	{`{"$deleteFromPrimitiveList/set":[[]]}`, "$deleteFromPrimitiveList/set[0]"},
	{`{"$deleteFromPrimitiveList/parts":[{"name":"a"}]}`, "$deleteFromPrimitiveList/parts"},
	{`{"$deleteFromPrimitiveList/unknown":[]}`, "$deleteFromPrimitiveList/unknown"},
	{`{"$deleteFromPrimitiveList":[]}`, "$deleteFromPrimitiveList"},
	{`{"metadata":{"$deleteFromPrimitiveList/finalizers":[{"a":1}]}}`,
		"metadata.$deleteFromPrimitiveList/finalizers[0]"},
}

func decode(t *testing.T, patch string) map[string]any {
	t.Helper()
	var decoded map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(patch), &decoded); err != nil {
		t.Fatalf("decode %s: %v", patch, err)
	}
	return decoded
}

func TestStrategicAccepts(t *testing.T) {
	for _, patch := range fitting {
		if _, errs := Strategic(decode(t, patch), []byte(patch), objectType); len(errs) > 0 {
			t.Errorf("%s: got %v, want no error", patch, errs)
		}
	}
}

func TestStrategicRejects(t *testing.T) {
	for _, tc := range unfitting {
		_, errs := Strategic(decode(t, tc.patch), []byte(tc.patch), objectType)
		if len(errs) != 1 || errs[0].Field != tc.field {
			t.Errorf("%s: got %v, want one error for %s", tc.patch, errs, tc.field)
		}
	}
}

func TestApply(t *testing.T) {
	for _, tc := range []struct{ configuration, field string }{
		{`{"int32":2147483647,"int64":9007199254740993,"uint8":255,"float64":1e300,"float32":7,"port":80,"raw":{"a":9007199254740993},"parts":[{"name":"a","count":1.0}]}`, ""},
		{`{"parts":[{"count":1}],"unknown":{"$any":1},"set":["a","a"]}`, ""}, // the library checks these
		{`{"int64":-9223372036854775808}`, ""}, {`{"int64":9223372036854775807}`, ""},
		{`{"int32":4294967296}`, "int32"}, {`{"int32":1.5}`, "int32"}, {`{"int32":1e10}`, "int32"},
		{`{"int32":"1"}`, "int32"}, {`{"text":1}`, "text"},
		{`{"uint8":-1}`, "uint8"}, {`{"float32":1e39}`, "float32"}, {`{"int64":18446744073709551615}`, "int64"},
		{`{"raw":{"a":18446744073709551615}}`, "raw.a"}, {`{"parts":[{"name":"a","count":2147483648}]}`,
			"parts[0].count"},
		{`{"parts":{"name":"a"}}`, "parts"}, {`{"spec":[]}`, "spec"}, {`{"size":"x"}`, "size"},
		{`{"limits":{"a":-2147483649}}`, "limits[a]"},
		// Numbers that the YAML parser rounds.
		{`{"int32":2.99999999999999999999}`, "int32"}, {`{"port":2.99999999999999999999}`, "port"},
		{`{"int64":9007199254740993.0}`, "int64"}, {`{"int32":1e-400}`, "int32"},
		{`{"port":2.99999999999999999999}`, "port"}, {`{"limits":{"a":-1.00000000000000000001}}`, "limits[a]"},
		{"parts:\n- name: a\n  count: 3.9999999999999999999\n", "parts[0].count"},
		{"int32: +2.999_999_999_999_999_999_999", "int32"}, {"int64: 9_007_199_254_740_993.", "int64"},
		{"int32: .99999999999999999999", "int32"}, {"{int64: 90071992547409.93e2}", "int64"},
		{"int32: !!float '2.99999999999999999999'", "int32"},
		{`{"text":"2.99999999999999999999","int32":3,"int64":9007199254740992}`, ""},
		{`{"int32":4.0,"int64":1e3,"float64":2.99999999999999999999,"raw":{"a":2.99999999999999999999}}`, ""},
		{"int32: 300e-2\nint64: 1_000", ""}, {"text: 1.2.3-99999999999999999.9\nint64: 99999999999999999", ""},
	} {
		var configuration map[string]any
		if err := yaml.Unmarshal([]byte(tc.configuration), &configuration); err != nil {
			t.Fatalf("decode %s: %v", tc.configuration, err)
		}
		errs := Apply(configuration, []byte(tc.configuration), objectType)
		if tc.field == "" && len(errs) > 0 || tc.field != "" && (len(errs) != 1 || errs[0].Field != tc.field) {
			t.Errorf("%s: got %v, want an error for %q", tc.configuration, errs, tc.field)
		}
	}
}

// TestErrorsAreBounded checks that a response is small for any content of a patch.
func TestErrorsAreBounded(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	deep := any(slicesOf(1e19, 1000))
	for range 9000 {
		deep = map[string]any{long[:maxText]: deep}
	}
	for _, patch := range []map[string]any{
		{"labels": map[string]any{long: map[string]any{}}, "text": []any{long}, "at": long, "int32": long,
			"$" + long: long},
		{"set": slicesOf(nil, 1000)},
		{"set": slicesOf("a", maxMerged+1)},
		{"set": slicesOf("a", maxMerged-1), orderDirective + "/set": slicesOf("a", maxMerged-1)},
		{"$patch": "replace", "raw": slicesOf(map[string]any{"a": 1e19}, 1000)},
		{"$patch": "replace", "raw": deep},
		{"spec": map[string]any{"$retainKeys": []any{}, long: long}},
	} {
		_, errs := Strategic(patch, nil, objectType)
		if size := len(errs.ToAggregate().Error()); len(errs) == 0 || len(errs) > maxErrors || size > 64<<10 {
			t.Errorf("got %d errors of %d bytes in all", len(errs), size)
		}
	}
}

func slicesOf(v any, n int) []any {
	list := make([]any, n)
	for i := range list {
		list[i] = v
	}
	return list
}

// TestMessages checks that a message contains the value that was sent.
func TestMessages(t *testing.T) {
	_, errs := Strategic(decode(t, `{"int32":4294967296}`), nil, objectType)
	want := field.ErrorList{field.TypeInvalid(field.NewPath("int32"), int64(4294967296),
		"must be in the range of int32")}
	if !reflect.DeepEqual(errs, want) {
		t.Errorf("got %v, want %v", errs, want)
	}
}
