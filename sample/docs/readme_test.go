// SPDX-License-Identifier: Apache-2.0

// Package docs runs what README and docs say of the sample.
package docs

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"example.com/extension-apiserver/internal/scripttest"
)

// runPatience is how long make run may take where builds and other tests have the same cores: a minute alone, when it builds.
const runPatience = 10 * time.Minute

// TestReadme runs "Try it" of the README: make run in one terminal, the commands in another, Ctrl-C, and the same again,
// which must find the objects.
func TestReadme(t *testing.T) {
	dir := scripttest.CopyTree(t, filepath.Join("..", ".."))
	readme, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := scripttest.Blocks(string(readme))
	if len(blocks) < 3 || strings.TrimSpace(blocks[0]) != "make run" || strings.TrimSpace(blocks[2]) != "make test" {
		t.Fatalf("the README's blocks are %q, want make run, what to try, make test, ...", blocks)
	}
	ci, err := os.ReadFile(filepath.Join(dir, ".ci", "run"))
	if err != nil || !strings.Contains(string(ci), " make test\n") {
		t.Errorf(".ci/run does not run the README's test command make test (%v)", err)
	}

	first := makeRun(t, dir, blocks[0])
	out := scripttest.Shell(t, dir, blocks[1])
	for _, want := range []string{
		`widget.workshop.example.com/sample created`, `gadget.workshop.example.com/sample created`,
		`default +widget.workshop.example.com/sample +pendulum +Standard +2 +0`,
		`model	<string> -required-`, `authenticator: RequestHeader`, `username: admin`,
	} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("the commands of the README printed no %q:\n%s", want, out)
		}
	}
	first.interrupt(t)

	second := makeRun(t, dir, blocks[0])
	if out := scripttest.Shell(t, dir, blocks[1]); !strings.Contains(out, "widget.workshop.example.com/sample unchanged") {
		t.Errorf("the second make run did not find the widget of the first:\n%s", out)
	}
	second.interrupt(t)
	scripttest.Shell(t, dir, "make run-clean")
	if _, err := os.Stat(filepath.Join(dir, ".run")); !os.IsNotExist(err) {
		t.Errorf("after make run-clean: .run: %v, want none", err)
	}
}

// running is a make run.
type running struct {
	cmd  *exec.Cmd
	done chan error
	mu   sync.Mutex
	out  strings.Builder
	said chan struct{} // closed when it said that it is ready
}

func (r *running) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ready := strings.Contains(r.out.String(), "Ctrl-C stops everything")
	n, err := r.out.Write(p)
	if !ready && strings.Contains(r.out.String(), "Ctrl-C stops everything") {
		close(r.said)
	}
	return n, err
}

func (r *running) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.out.String()
}

// makeRun starts the command in a process group of its own, as a terminal does, and waits until it is ready.
func makeRun(t *testing.T, dir, command string) *running {
	t.Helper()
	r := &running{done: make(chan error, 1), said: make(chan struct{})}
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

// interrupt does what Ctrl-C does: the whole process group gets the signal.
func (r *running) interrupt(t *testing.T) {
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
	if out := r.String(); !strings.Contains(out, "Stopping ...") || strings.Contains(out, "run: ") {
		t.Errorf("after Ctrl-C make run printed, want that it stops and no error:\n%s", out)
	}
}
