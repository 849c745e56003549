// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"path/filepath"
	"strconv"
	"testing"
)

// BenchmarkInit creates all sets, ten key pairs, in a new directory on disk for each iteration.
// The limit is in docs/reference/measurements.md.
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
