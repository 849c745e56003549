// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"runtime/metrics"
)

// headroom measures how much of the heap is free for requests that hold shares of the memory. The
// rest is for objects in the watch cache and their earlier versions, for watches, and for requests
// that need no share.
type headroom struct {
	most   int64  // limit of the heap in use
	cycles uint64 // garbage collections when others was measured
	others int64  // bytes of the heap that are not for shares
}

// free returns the bytes of the heap that all shares together may use, when the present shares have
// taken bytes. It must not be called concurrently.
//
// Requests that have just got a share use less than the share. Therefore others follows a lower
// measurement slowly, and a higher one at once.
func (h *headroom) free(taken int64) int64 {
	samples := []metrics.Sample{{Name: "/gc/cycles/total:gc-cycles"}, {Name: "/gc/heap/live:bytes"}}
	metrics.Read(samples)
	if cycles := samples[0].Value.Uint64(); cycles != h.cycles {
		measured := int64(samples[1].Value.Uint64()) - taken //nolint:gosec // fits in memory
		h.cycles, h.others = cycles, max(measured, h.others-(h.others-measured)/8)
	}
	return h.most - h.others
}
