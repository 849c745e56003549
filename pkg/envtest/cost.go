// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// VmRSS returns the resident memory of the process in KiB (proc(5)).
func (p *process) VmRSS() (kib int, err error) { return p.status("VmRSS") }

// VmHWM returns the maximum of VmRSS since the start or since ResetVmHWM, in KiB.
func (p *process) VmHWM() (kib int, err error) { return p.status("VmHWM") }

// ResetVmHWM sets VmHWM to VmRSS (proc_pid_clear_refs(5)).
func (p *process) ResetVmHWM() error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p.cmd.Process.Pid), []byte("5"), 0)
}

// CPUTime returns the CPU time of all threads of the process since its start. It is exact, unlike
// /proc/PID/stat and process_cpu_seconds_total, which count in steps of 10 ms.
func (p *process) CPUTime() (time.Duration, error) {
	// clock_getcpuclockid(3) computes the clock of a process in this way.
	const schedClock = 2
	clock := ^p.cmd.Process.Pid<<3 | schedClock
	var spec unix.Timespec
	if err := unix.ClockGettime(int32(clock), &spec); err != nil { //nolint:gosec // a process ID has 22 bits
		return 0, fmt.Errorf("read CPU time of %s: %w", p.name, err)
	}
	return time.Duration(spec.Nano()), nil
}

// Descriptors returns the number of open file descriptors of the process.
func (p *process) Descriptors() (int, error) {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.cmd.Process.Pid))
	return len(entries), err
}

func (p *process) status(name string) (kib int, err error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.SplitSeq(string(data), "\n") {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			_, err := fmt.Sscan(value, &kib)
			return kib, err
		}
	}
	return 0, fmt.Errorf("no %s in /proc/PID/status", name)
}
