// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"testing"

	"github.com/prometheus/procfs"
)

// TestReleaseCode: the code that was run is no longer counted as memory of the process, and runs again where it is needed.
func TestReleaseCode(t *testing.T) {
	before := filePages(t)
	if err := releaseCode(); err != nil {
		t.Fatal(err)
	}
	if after := filePages(t); after >= before {
		t.Errorf("memory that is backed by files: got %d KiB after, %d KiB before, want less", after>>10, before>>10)
	}
}

// filePages returns what the kernel calls RssFile, in bytes.
func filePages(t *testing.T) uint64 {
	t.Helper()
	self, err := procfs.Self()
	if err != nil {
		t.Fatal(err)
	}
	status, err := self.NewStatus()
	if err != nil {
		t.Fatal(err)
	}
	return status.RssFile
}
