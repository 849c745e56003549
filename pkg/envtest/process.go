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
	// stopTimeout is how long a child may take to end after SIGTERM: kube-apiserver drains requests for some seconds.
	stopTimeout = 20 * time.Second
	// tailLines is how much of a log a person needs to see why a process ended.
	tailLines = 25
)

// process is a child with its log.
type process struct {
	name, log string
	cmd       *exec.Cmd
	// killed: it does not end at SIGTERM, and is stopped by SIGKILL.
	killed bool
	// tunnel: it carries what kube-apiserver dials, which for 30 s does not stop dialling a socket that is gone.
	tunnel   bool
	stopping atomic.Bool
	done     chan struct{} // closed when it ended
	err      error         // why; read after done
}

// Log is the path of its log.
func (p *process) Log() string { return p.log }

// processes starts children, watches them and stops them in reverse order.
type processes struct {
	logDir string
	// fail is called once for each child that ends without being told to.
	fail func(error)
	mu   sync.Mutex
	all  []*process
}

// start runs a command in a host's network, with more variables than this process has. Output goes to logDir/name.log,
// after what is there already.
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
	// A group of its own keeps a Ctrl-C of the terminal from us alone to pass on, in order. Pdeathsig ends the child
	// when we end without stopping it: after a panic, or kill -9.
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

// ready waits until check returns nil. An error after the timeout shows the end of the log; that of a process that
// ended has it already.
func (p *process) ready(ctx context.Context, timeout time.Duration, check func(context.Context) error) error {
	err := eventually(ctx, p.name, timeout, check)
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w; the end of %s:\n%s", err, p.log, tail(p.log))
	}
	return err
}

// ended describes the end of a process, with the tail of its log.
func (p *process) ended() error {
	return fmt.Errorf("%s exited unexpectedly (%v); the end of %s:\n%s", p.name, errOr(p.err, "exit code 0"),
		p.log, tail(p.log))
}

// signal sends a signal to a process that still runs.
func (p *process) signal(sig syscall.Signal) error {
	select {
	case <-p.done:
		return nil
	default:
		return p.cmd.Process.Signal(sig)
	}
}

// stop ends the process: SIGTERM, and SIGKILL after stopTimeout. It does nothing if it ended before.
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

// kill ends the process at once, as a crash does.
func (p *process) kill() {
	p.stopping.Store(true)
	_ = p.signal(syscall.SIGKILL)
	<-p.done
}

// stopAll stops what still runs, the last started first and tunnels after all else, and gives each so much time.
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

// tail returns the last lines of a file.
func tail(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	// What it wrote since it started last. A program that panicked says why before the stacks of its goroutines, which
	// may be long.
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

// eventually calls check until it returns nil. It ends early, with the cause, when ctx ends, as it does when a child
// dies.
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
