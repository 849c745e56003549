// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// LaunchChild runs a function on the one OS thread that starts all child processes. The kernel
// sends a child its parent-death signal when the *thread* that started it exits. That thread must
// therefore live as long as this process: it is locked and never exits. It is also the thread that
// may enter a network namespace for the duration of a fork.
func LaunchChild(f func()) {
	done := make(chan struct{})
	thread() <- func() { defer close(done); f() }
	<-done
}

var thread = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range work {
			f()
		}
	}()
	return work
})

// RunChild runs a command until it exits. The kernel kills the command when this process exits.
// When its context ends, the command is killed together with the processes in its process group.
func RunChild(cmd *exec.Cmd) (err error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	LaunchChild(func() { err = cmd.Start() })
	if err != nil {
		return err
	}
	return cmd.Wait()
}
