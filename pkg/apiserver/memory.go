// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"os"
	"runtime/debug"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
)

// startMemoryNeeded is longer than kube-apiserver takes to fetch discovery and OpenAPI from a new server.
const startMemoryNeeded = 30 * time.Second

// releaseStartMemory gives back to the system, once, what only the start needed. Building and encoding the OpenAPI specs,
// which the aggregator fetches in the first seconds, takes more memory than everything the server then keeps; and the start
// runs through most of the code, a third of which is then not run again.
func releaseStartMemory(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-time.After(startMemoryNeeded):
	}
	debug.FreeOSMemory()
	if err := releaseCode(); err != nil {
		klog.ErrorS(err, "The code that only the start needed stays in memory")
	}
}

// releaseCode takes the pages of the program's code out of the process. What runs again is mapped again, from the page
// cache. Code is never written to, so nothing can be lost; data, even what is read-only, can be (relocations), and stays.
func releaseCode() error {
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	self, err := procfs.Self()
	if err != nil {
		return err
	}
	maps, err := self.ProcMaps()
	if err != nil {
		return err
	}
	for _, m := range maps {
		if m.Pathname != program || !m.Perms.Execute || m.Perms.Write {
			continue
		}
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, m.StartAddr, m.EndAddr-m.StartAddr, unix.MADV_DONTNEED); errno != 0 {
			return os.NewSyscallError("madvise", errno)
		}
	}
	return nil
}
