// SPDX-License-Identifier: Apache-2.0

package objectsizes

import (
	"bytes"
	"fmt"
	"testing"
)

// BenchmarkJSONLength measures the additional cost of each read from and write to etcd.
func BenchmarkJSONLength(b *testing.B) {
	for name, char := range map[string]string{"text": "x", "escapes": "<", "unicode": "世", "binary": "\xff"} {
		data := append([]byte("k8s\x00"), bytes.Repeat([]byte(char), 1_500_000/len(char))...)
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				JSONLength(data)
			}
		})
	}
}

// BenchmarkLarge measures the additional cost of each list while as many large objects are tracked
// as possible.
func BenchmarkLarge(b *testing.B) {
	sizes := New()
	r := sizes.resource(widgets, "/registry/example.com/widgets/", nil)
	for i := range maxTracked {
		r.objects[fmt.Sprintf("namespace-%d/w%d", i%10, i)] = object{100_000, 100_000}
	}
	for b.Loop() {
		sizes.Large(widgets, "namespace-1")
	}
}

// BenchmarkMost measures the additional cost of a Table while objects need more memory than a user
// may have.
func BenchmarkMost(b *testing.B) {
	sizes := New()
	r := sizes.resource(widgets, "/registry/example.com/widgets/", nil)
	for i := range maxTracked {
		r.objects[fmt.Sprintf("namespace/w%d", i)] = object{int64(20_000 + i*7919%10_000), 10_000}
	}
	for b.Loop() {
		sizes.Most(widgets, "namespace", 500)
	}
}
