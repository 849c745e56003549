// SPDX-License-Identifier: Apache-2.0

// Package child starts children that end with this process, however that ends.
package child

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// Launch runs a function on the one OS thread that starts all children. The kernel sends a child its parent-death
// signal when the *thread* that started it ends, so that thread must live as long as this process: it is locked and
// never ends. It is also the thread that may enter a network namespace for the time of a fork.
func Launch(f func()) {
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

// Run runs a command that starts others, which end with it, and with its context.
func Run(cmd *exec.Cmd) (err error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	Launch(func() { err = cmd.Start() })
	if err != nil {
		return err
	}
	return cmd.Wait()
}
