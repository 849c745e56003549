// SPDX-License-Identifier: Apache-2.0

package patch

import (
	"bytes"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	kjson "sigs.k8s.io/json"
)

// BenchmarkStrategic compares decoding and checking a patch with the least that the library does
// afterwards: it decodes the patch twice, merges it and converts the result.
func BenchmarkStrategic(b *testing.B) {
	original := map[string]any{"spec": map[string]any{"name": "a"},
		"parts": []any{map[string]any{"name": "a", "count": int64(1)}}}
	for name, body := range map[string][]byte{
		"small":                     []byte(`{"metadata":{"labels":{"a":"b"}},"int32":3,"parts":[{"name":"a","count":2}],"$setElementOrder/parts":[{"name":"a"}]}`),
		"3 MiB of numbers":          []byte(`{"words":["a"],"data":[` + strings.Repeat("0,", 3<<19-20) + `0]}`),
		"3 MiB of empty objects":    []byte(`{"atomic":[` + strings.Repeat("{},", 1<<20-10) + `{}]}`),
		"3 MiB that does not fit":   []byte(`{"set":[` + strings.Repeat("{},", 1<<20-10) + `{}]}`),
		"3 MiB of unknown elements": []byte(`{"x":[` + strings.Repeat("[],", 1<<20-10) + `{}]}`),
	} {
		decoded := func(b *testing.B) map[string]any {
			var content map[string]any
			if err := kjson.UnmarshalCaseSensitivePreserveInts(body, &content); err != nil {
				b.Fatal(err)
			}
			return content
		}
		b.Run(name+"/check", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Strategic(decoded(b), body, objectType)
			}
		})
		b.Run(name+"/library", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				decoded(b)
				merged, err := strategicpatch.StrategicMergeMapPatch(runtime.DeepCopyJSON(original),
					decoded(b), &object{})
				if err == nil {
					_ = runtime.DefaultUnstructuredConverter.FromUnstructured(merged, &object{})
				}
				_ = bytes.Clone(body)
			}
		})
	}
}
