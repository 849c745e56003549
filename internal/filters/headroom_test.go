// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"runtime"
	"testing"
)

// TestHeadroom checks that shares get what the rest of the heap leaves, where the rest grows at
// once and shrinks slowly.
func TestHeadroom(t *testing.T) {
	const most, cached, tolerance = 1 << 30, 64 << 20, 8 << 20
	h := &headroom{most: most}
	check := func(what string, got, want int64) {
		t.Helper()
		if got < want-tolerance || got > want+tolerance {
			t.Errorf("%s: %d MiB are free, want %d", what, got>>20, want>>20)
		}
	}
	runtime.GC()
	empty := h.free(0)
	objects := make([]byte, cached)
	runtime.GC()
	check("objects are cached", h.free(0), empty-cached)
	check("without a collection, shares change nothing", h.free(cached), empty-cached)
	runtime.GC()
	check("shares use the objects", h.free(cached), empty-cached+cached/8)
	runtime.KeepAlive(objects)
	for range 50 {
		runtime.GC()
		h.free(0)
	}
	check("the objects are deleted", h.free(0), empty)
}
