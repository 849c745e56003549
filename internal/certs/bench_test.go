// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"path/filepath"
	"strconv"
	"testing"
)

// BenchmarkInit makes all sets, ten pairs, each time in a new directory, and writes them to disk. The bound is in
// docs/measurements.md.
func BenchmarkInit(b *testing.B) {
	opts := allSets("")
	dir := b.TempDir()
	for i := 0; b.Loop(); i++ {
		opts.Dir = filepath.Join(dir, strconv.Itoa(i))
		if _, err := Init(b.Context(), opts); err != nil {
			b.Fatal(err)
		}
	}
}
