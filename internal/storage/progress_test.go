// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestReport checks that an operation of less than two seconds prints nothing, and that a longer
// one prints its progress every two seconds.
func TestReport(t *testing.T) {
	for took, want := range map[time.Duration]string{
		1900 * time.Millisecond: "",
		5 * time.Second:         "half done (2s)\nhalf done (4s)\n",
	} {
		synctest.Test(t, func(t *testing.T) {
			var out strings.Builder
			stop := report(&out, func() string { return "half done" })
			<-time.After(took)
			stop()
			if out.String() != want {
				t.Errorf("after %s: got %q, want %q", took, out.String(), want)
			}
		})
	}
}
