// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"example.com/extension-apiserver/internal/controlplane"
)

const (
	// stopTimeout is how long a child process may take to exit after SIGTERM. kube-apiserver
	// drains requests for some seconds.
	stopTimeout = 20 * time.Second
	// tailLines is the number of log lines that usually shows why a process exited.
	tailLines = 25
)

// process is a child process and its log.
type process struct {
	name, log string
	cmd       *exec.Cmd
	// killed is true if the process does not exit at SIGTERM and is stopped by SIGKILL.
	killed bool
	// tunnel is true if the process carries connections of kube-apiserver, which retries a
	// missing socket for 30 s. Such processes are stopped last.
	tunnel   bool
	stopping atomic.Bool
	done     chan struct{} // closed when it has exited
	err      error         // the result of Wait; read it after done
}

// Log returns the path of the log.
func (p *process) Log() string { return p.log }

// processes starts child processes, watches them and stops them in reverse order.
type processes struct {
	logDir string
	// fail is called once for each child process that exits unexpectedly.
	fail func(error)
	mu   sync.Mutex
	all  []*process
}

// start runs a command in a host's network with additional environment variables. It appends the
// output to logDir/name.log.
func (ps *processes) start(h *host, name string, command []string, environ ...string) (*process, error) {
	p := &process{name: name, log: filepath.Join(ps.logDir, name+".log"), done: make(chan struct{})}
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open log of %s: %w", name, err)
	}
	defer out.Close()
	fmt.Fprintf(out, "# %s\n", strings.Join(command, " "))
	p.cmd = exec.Command(command[0], command[1:]...)
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.Env = append(withoutProxies(os.Environ()), environ...)
	// A separate process group keeps a Ctrl-C of the terminal from the child, so that this
	// process can stop all children in order. Pdeathsig kills the child if this process exits
	// without stopping it, after a panic or kill -9.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	controlplane.LaunchChild(func() { err = h.inNamespace(p.cmd.Start) })
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	ps.mu.Lock()
	ps.all = append(ps.all, p)
	ps.mu.Unlock()
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
		if !p.stopping.Load() {
			ps.fail(p.ended())
		}
	}()
	return p, nil
}

// ready waits until check returns nil. The error after the timeout contains the end of the log.
// If the process has exited, its failure already contains it.
func (p *process) ready(ctx context.Context, timeout time.Duration, check func(context.Context) error) error {
	err := eventually(ctx, p.name, timeout, check)
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w; the end of %s:\n%s", err, p.log, tail(p.log))
	}
	return err
}

// ended returns an error for the exit of a process, with the end of its log.
func (p *process) ended() error {
	return fmt.Errorf("%s exited unexpectedly (%v); the end of %s:\n%s", p.name, errOr(p.err, "exit code 0"),
		p.log, tail(p.log))
}

// signal sends a signal to the process if it is still running.
func (p *process) signal(sig syscall.Signal) error {
	select {
	case <-p.done:
		return nil
	default:
		return p.cmd.Process.Signal(sig)
	}
}

// stop stops the process with SIGTERM, and with SIGKILL after stopTimeout. It does nothing if the
// process has exited.
func (p *process) stop() error { return p.stopWithin(stopTimeout) }

func (p *process) stopWithin(timeout time.Duration) error {
	if p.killed {
		p.kill()
		return nil
	}
	p.stopping.Store(true)
	if err := p.signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", p.name, err)
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(timeout):
	}
	_ = p.signal(syscall.SIGKILL)
	<-p.done
	return fmt.Errorf("stop %s: it did not exit within %s and was killed; the end of %s:\n%s", p.name, timeout,
		p.log, tail(p.log))
}

// kill kills the process at once, like a crash.
func (p *process) kill() {
	p.stopping.Store(true)
	_ = p.signal(syscall.SIGKILL)
	<-p.done
}

// stopAll stops all running processes in reverse order of their start, but tunnels last. The
// timeout applies to each process.
func (ps *processes) stopAll(timeout time.Duration) error {
	ps.mu.Lock()
	all := ps.all
	ps.all = nil
	ps.mu.Unlock()
	for _, p := range all {
		p.stopping.Store(true)
	}
	slices.SortStableFunc(all, func(a, b *process) int {
		switch {
		case a.tunnel == b.tunnel:
			return 0
		case a.tunnel:
			return -1
		}
		return 1
	})
	var errs []error
	for _, p := range slices.Backward(all) {
		errs = append(errs, p.stopWithin(timeout))
	}
	return errors.Join(errs...)
}

// tail returns the last lines of a log file.
func tail(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	// Consider only the output since the last start. A program that panicked prints the reason
	// before the stacks of its goroutines, which may be long.
	data = data[bytes.LastIndex(data, []byte("\n# "))+1:]
	data, _, _ = bytes.Cut(data, []byte("\n\ngoroutine "))
	lines := bytes.Split(bytes.TrimRight(data, "\n"), []byte("\n"))
	if len(lines) > tailLines {
		lines = lines[len(lines)-tailLines:]
	}
	return "    " + string(bytes.Join(lines, []byte("\n    ")))
}

func errOr(err error, text string) any {
	if err != nil {
		return err
	}
	return text
}

// eventually calls check until it returns nil. It returns early with the cause if ctx is done,
// which happens when a child process exits.
func eventually(ctx context.Context, what string, timeout time.Duration, check func(context.Context) error) error {
	deadline := time.Now().Add(timeout)
	for {
		attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := check(attempt)
		cancel()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("wait for %s: %w", what, context.Cause(ctx))
		case time.Now().After(deadline):
			return fmt.Errorf("wait for %s: timed out after %s: %w", what, timeout, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}
