// SPDX-License-Identifier: Apache-2.0

//go:build unix

package scripttest

import (
	"context"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// runPatience is how long make run may take while builds and other tests use the same cores.
// Alone, it takes a minute when it builds.
const runPatience = 10 * time.Minute

// readyText is what make run prints when the API can be used.
const readyText = "Press Ctrl-C to stop"

// Running is a running make run.
type Running struct {
	cmd  *exec.Cmd
	done chan error
	mu   sync.Mutex
	out  strings.Builder
	said chan struct{} // closed when it has printed that it is ready
}

// Write implements io.Writer.
func (r *Running) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ready := strings.Contains(r.out.String(), readyText)
	n, err := r.out.Write(p)
	if !ready && strings.Contains(r.out.String(), readyText) {
		close(r.said)
	}
	return n, err
}

// String returns the output so far.
func (r *Running) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.out.String()
}

// MakeRun starts the command in its own process group, as a terminal does, and waits until it is
// ready.
func MakeRun(t *testing.T, dir, command string) *Running {
	t.Helper()
	r := &Running{done: make(chan error, 1), said: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	r.cmd = exec.CommandContext(ctx, "bash", "-c", command)
	r.cmd.Dir = dir
	r.cmd.Stdout, r.cmd.Stderr = r, r
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { r.done <- r.cmd.Wait(); close(ended) }()
	t.Cleanup(func() {
		_ = syscall.Kill(-r.cmd.Process.Pid, syscall.SIGINT)
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Errorf("make run did not end:\n%s", r)
		}
		cancel()
	})
	select {
	case <-r.said:
	case err := <-r.done:
		t.Fatalf("%s ended: %v\n%s", command, err, r)
	case <-time.After(runPatience):
		t.Fatalf("%s is not ready after %s:\n%s", command, runPatience, r)
	}
	return r
}

// Interrupt does what Ctrl-C does: it sends the signal to the whole process group.
func (r *Running) Interrupt(t *testing.T) {
	t.Helper()
	if err := syscall.Kill(-r.cmd.Process.Pid, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-r.done:
		t.Logf("make run ended: %v", err)
	case <-time.After(time.Minute):
		t.Fatalf("make run did not end within a minute after Ctrl-C:\n%s", r)
	}
	if out := r.String(); !strings.Contains(out, "Stopping ...") || strings.Contains(out, "\nlocal-up: ") {
		t.Errorf("after Ctrl-C make run printed, want that it stops and no error:\n%s", out)
	}
}
