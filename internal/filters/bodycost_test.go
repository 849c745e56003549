// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"bytes"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"example.com/extension-apiserver/internal/patch"
)

// protobufValues returns a message with n fields and no long list.
func protobufValues(n int) string {
	var message []byte
	for i := range n {
		message = append(protowire.AppendTag(message, protowire.Number(1+i%1000), protowire.BytesType), 0)
	}
	return string(message)
}

// TestCostOfBodies checks that bodies with more values cost more, and that bodies with too many
// values are rejected.
func TestCostOfBodies(t *testing.T) {
	nested := func(message []byte, count int) []byte {
		for range count {
			message = append(protowire.AppendVarint([]byte{0x0a}, uint64(len(message))), message...)
		}
		return message
	}
	lengthOf := func(message []byte) []byte {
		return append(protowire.AppendVarint(nil, uint64(len(message))), message...)
	}
	empty := func(n int) []byte { return bytes.Repeat([]byte{0x2a, 0}, n) }
	for name, tc := range map[string]struct {
		encoding bodyEncoding
		body     []byte
		values   int // 0 means too many
	}{
		"JSON, a text":  {jsonEncoding, []byte(`{"a":"` + strings.Repeat("x", 1000) + `"}`), 1},
		"JSON, numbers": {jsonEncoding, []byte(strings.Repeat("1,", 1000)), 500},
		"JSON, objects": {jsonEncoding, []byte(strings.Repeat("{},", 1000)), 1000},
		"JSON, fields":  {jsonEncoding, []byte(strings.Repeat(`"a":1,`, 1000)), 1000},
		"JSON, most": {jsonEncoding, []byte(strings.Repeat(`{"a":1},`, maxValues*2/3)),
			maxValues * 2 / 3 * 3 / 2},
		"JSON, a list": {jsonEncoding,
			[]byte("[[" + strings.Repeat(`"[,",`, maxList-1) + "1]]"), maxList / 2},
		"JSON, a long list": {jsonEncoding, []byte("[[" + strings.Repeat("1,", maxList) + "1]]"), 0},
		"JSON, a long list in a list": {jsonEncoding,
			[]byte(`{"a":[1,{"b":[` + strings.Repeat("{},", maxList) + `{}]}]}`), 0},
		"JSON, two long lists": {jsonEncoding,
			[]byte(`{"a":[` + strings.Repeat("1,", maxList*3/4) + `1],"b":[` +
				strings.Repeat("1,", maxList*3/4) + `1]}`), 0},
		"JSON, operations": {jsonEncoding,
			[]byte("[" + strings.Repeat("1,", maxList) + "1]"), maxList / 2},
		"JSON in YAML, a long list": {yamlEncoding, []byte("[[" + strings.Repeat("1,", maxList) + "1]]"), 0},
		"JSON, deep": {jsonEncoding,
			[]byte(strings.Repeat("[", 1000) + strings.Repeat("]", 1000)), 500},
		"JSON, too many":           {jsonEncoding, []byte(strings.Repeat(`"a":1,`, maxValues+1)), 0},
		"protobuf, a text":         {protobufEncoding, []byte("k8s\x00\x0a\x05abcde"), 1},
		"protobuf, empty messages": {protobufEncoding, append([]byte("k8s\x00"), empty(1000)...), 1000},
		"protobuf, nested": {protobufEncoding,
			append([]byte("k8s\x00"), nested(empty(1000), 10)...), 1010},
		"protobuf, deep": {protobufEncoding,
			append([]byte("k8s\x00"), nested(empty(1000), maxNested+5)...), 1000 + maxNested + 7},
		"protobuf, a list":            {protobufEncoding, empty(maxList), maxList},
		"protobuf, a long list":       {protobufEncoding, empty(maxList + 1), 0},
		"protobuf, a long list, deep": {protobufEncoding, nested(empty(maxList+1), 10), 0},
		"protobuf, what only gogo reads": {protobufEncoding,
			append([]byte("\x12"), lengthOf(append(empty(maxList+1), 0xa0, 0x86, 0x80, 0x80, 0x80, 0x01, 0))...), 0},
		"protobuf, groups that end otherwise": {protobufEncoding,
			append([]byte("k8s\x00\x73\x7c\x12"), lengthOf(empty(maxList+1))...), 0},
		"protobuf, groups": {protobufEncoding,
			append([]byte("k8s\x00\x73\x0a\x01a\x73\x74\x74\x12"), lengthOf(empty(10))...), 12},
		"protobuf, a long text": {protobufEncoding,
			append([]byte("\x12"), lengthOf([]byte(strings.Repeat("lorem ipsum ", 10_000)))...), 1},
		"protobuf, owners": {protobufEncoding,
			append([]byte("\x12"), lengthOf(append([]byte("\x0a"),
				lengthOf(bytes.Repeat([]byte{13<<3 | 2, 0}, patch.MaxOwners+1))...))...), 0},
		"JSON, owners": {jsonEncoding,
			[]byte(`{"ownerReferences":[` + strings.Repeat("{},", patch.MaxOwners) + "{}]}"), 0},
		"JSON, other lists": {jsonEncoding,
			[]byte(`{"ownerReferences":1,"a":[` + strings.Repeat("{},", patch.MaxOwners) + "{}]}"),
			patch.MaxOwners + 3},
		"JSON, most fields": {jsonEncoding,
			[]byte("{" + strings.Repeat(`"a":1,`, maxList-1) + `"a":1}`), maxList},
		"JSON, too many fields": {jsonEncoding,
			[]byte("{" + strings.Repeat(`"a":1,`, maxList) + `"a":1}`), 0},
		"CBOR, too many":           {cborEncoding, make([]byte, maxValues+1), 0},
		"protobuf, most":           {protobufEncoding, []byte(protobufValues(maxValues)), maxValues},
		"protobuf, too many":       {protobufEncoding, []byte(protobufValues(maxValues + 1000)), 0},
		"protobuf, too many, deep": {protobufEncoding, nested([]byte(protobufValues(maxValues)), 20), 0},
	} {
		content, err := tc.encoding.content(tc.body)
		if refused := apierrors.IsRequestEntityTooLargeError(err); refused != (tc.values == 0) ||
			refused != (err != nil) {
			t.Errorf("%s: got %v, want a refusal: %t", name, err, tc.values == 0)
		}
		if err == nil && tc.encoding != yamlEncoding && content.values != tc.values {
			t.Errorf("%s: got %d values, want %d", name, content.values, tc.values)
		}
	}
	for encoding, body := range map[bodyEncoding]string{
		jsonEncoding: `{"a":[1,2,{"b":[],"c":[{},{}]}]}`, yamlEncoding: "a:\n- 1\n- 2\n- b: []",
		protobufEncoding: "k8s\x00\x0a\x00\x0a\x00\x12\x00\x0a\x00\x0a\x00",
	} {
		if got, err := encoding.content([]byte(body)); got.elements != 3 || err != nil {
			t.Errorf("%q: got %d elements beyond the first and error %v, want 3", body, got.elements, err)
		}
	}
	const element = `{"type":"a"},`
	if got, err := jsonEncoding.cost([]byte(`{"a":[` + strings.Repeat(element, 1000) +
		"{}]}")); got < 1000*elementCost || err != nil {
		t.Errorf("1,000 elements: got %d and error %v, want more", got, err)
	}
}

// TestNestedPatches checks that a patch is rejected if it has too many bytes, where each byte
// counts once for each level around it.
func TestNestedPatches(t *testing.T) {
	nested := func(depth, size int) []byte {
		return []byte(strings.Repeat(`{"a":`, depth) + `"` + strings.Repeat("x", size) + `"` +
			strings.Repeat("}", depth))
	}
	for name, tc := range map[string]struct {
		body  []byte
		fails bool
	}{
		"flat":           {nested(1, 3<<20), false},
		"deep and short": {nested(1000, 10), false},
		"deep and long":  {nested(300, 1<<20), true},
		"very deep":      {nested(9_900, 10), true},
	} {
		cost, err := jsonEncoding.patchCost(tc.body)
		if got := apierrors.IsRequestEntityTooLargeError(err); got != tc.fails || got != (err != nil) {
			t.Errorf("%s: got the error %v, want one: %t", name, err, tc.fails)
		}
		if plain, err := jsonEncoding.cost(tc.body); err != nil || !tc.fails && cost <= plain {
			t.Errorf("%s: got the cost %d of a patch and %d, %v of another body, want more and no error", name,
				cost, plain, err)
		}
	}
}

// TestFieldPaths checks that the total length of the names that lead to a field is limited,
// because errors repeat the names.
func TestFieldPaths(t *testing.T) {
	long, half := strings.Repeat("x", maxFieldPath), strings.Repeat("x", maxFieldPath/2)
	for body, fails := range map[string]bool{
		`{"a":{"` + half + `":[1]}}`:                    false,
		`{"` + half + `":1,"b":{"` + half[:9] + `":1}}`: false,
		`{"` + long + `":{"a":1,"a":1}}`:                true,
		`{"` + half + `":[{"` + half + `":1}]}`:         true,
	} {
		_, err := jsonEncoding.content([]byte(body))
		if got := apierrors.IsRequestEntityTooLargeError(err); got != fails || got != (err != nil) {
			t.Errorf("%.10s... with %d bytes: got %v, want an error: %t", body, len(body), err, fails)
		}
		yaml := strings.NewReplacer(`"`, ``, `:`, `: `, `,`, `, `).Replace(body)
		if got := checkNodes([]byte(yaml)) != nil; got != fails {
			t.Errorf("as YAML, %.10s...: got an error: %t, want %t", yaml, got, fails)
		}
	}
}
