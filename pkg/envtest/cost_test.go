// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// TestCPUTime compares the CPU time of this process with that of getrusage(2).
func TestCPUTime(t *testing.T) {
	p := &process{name: "this test", cmd: &exec.Cmd{Process: &os.Process{Pid: os.Getpid()}}}
	usage := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			t.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	before := usage()
	got, err := p.CPUTime()
	if err != nil {
		t.Fatal(err)
	}
	// The kernel scales the parts of getrusage, whose sum is exact to some microseconds.
	const tolerance = 10 * time.Millisecond
	if after := usage(); got < before-tolerance || got > after+tolerance {
		t.Errorf("got %s, want between %s and %s", got, before, after)
	}
}

// TestCPUTimeOfExited: the CPU time of a process that does not exist is an error.
func TestCPUTimeOfExited(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	_, err := (&process{name: "true", cmd: cmd}).CPUTime()
	wantError(t, err, "read CPU time of true: ")
}
