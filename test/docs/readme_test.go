// SPDX-License-Identifier: Apache-2.0

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
)

// runPatience is how long make run may take where builds and other tests have the same cores: a minute alone, when it builds.
const runPatience = 10 * time.Minute

// TestReadme runs "Try it" of the README: make run in one terminal, the commands in another, Ctrl-C, and the same again,
// which must find the objects.
func TestReadme(t *testing.T) {
	dir := copyTree(t)
	blocks := shellBlocks(t, filepath.Join(dir, "README.md"))
	if len(blocks) < 3 || strings.TrimSpace(blocks[0]) != "make run" || strings.TrimSpace(blocks[2]) != "make test" {
		t.Fatalf("the README's blocks are %q, want make run, what to try, make test, ...", blocks)
	}
	ci, err := os.ReadFile(filepath.Join(dir, ".ci", "run"))
	if err != nil || !strings.Contains(string(ci), " make test\n") {
		t.Errorf(".ci/run does not run the README's test command make test (%v)", err)
	}

	first := makeRun(t, dir, blocks[0])
	out := shell(t, dir, blocks[1])
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
	if out := shell(t, dir, blocks[1]); !strings.Contains(out, "widget.workshop.example.com/sample unchanged") {
		t.Errorf("the second make run did not find the widget of the first:\n%s", out)
	}
	second.interrupt(t)
	shell(t, dir, "make run-clean")
	if _, err := os.Stat(filepath.Join(dir, ".run")); !os.IsNotExist(err) {
		t.Errorf("after make run-clean: .run: %v, want none", err)
	}
}

// TestCertificatesDoc runs the commands of docs/certificates.md.
func TestCertificatesDoc(t *testing.T) {
	dir := copyTree(t)
	shell(t, dir, "make build")
	for _, block := range shellBlocks(t, filepath.Join(dir, "docs", "certificates.md")) {
		if out := shell(t, dir, block); !strings.Contains(out, "extension-apiserver.workshop-system.svc") {
			t.Errorf("no certificate for the Service in:\n%s", out)
		}
	}
}

// copyTree returns a directory with a copy of the tree.
func copyTree(t *testing.T) string {
	t.Helper()
	// Not t.TempDir: the path of a Unix socket in it would be too long.
	dir, err := os.MkdirTemp("", "docs-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	shell(t, filepath.Join("..", ".."), "scripts/copy-tree.sh "+dir)
	return dir
}

// shellBlocks returns the contents of the ```sh blocks of a Markdown file.
func shellBlocks(t *testing.T, path string) []string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var blocks []string
	for _, m := range regexp.MustCompile("(?ms)^```sh\n(.*?)^```$").FindAllStringSubmatch(string(data), -1) {
		blocks = append(blocks, m[1])
	}
	return blocks
}

// shell runs commands as a person pastes them, but stops at the first that fails.
func shell(t *testing.T, dir, commands string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", commands)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", commands, err, out)
	}
	return string(out)
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
