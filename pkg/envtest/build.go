// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Whoever waits hears after firstWord why, and then every otherWords.
const firstWord, otherWords = 2 * time.Second, 10 * time.Second

// tell calls f and tells meanwhile what is done.
func tell(to io.Writer, doing func() string, f func() error) error {
	done := make(chan struct{})
	var telling sync.WaitGroup
	defer telling.Wait()
	defer close(done)
	telling.Go(func() {
		for wait := firstWord; ; wait = otherWords {
			select {
			case <-done:
				return
			case <-time.After(wait):
				fmt.Fprintf(to, "control plane: %s\n", doing())
			}
		}
	})
	return f()
}

// build builds a program into the cache, under a name of its own until it is whole.
func (b *binaries) build(ctx context.Context, p program) error {
	if _, err := exec.LookPath("go"); err != nil {
		return fmt.Errorf("build %s: %w; install Go, or set %s to a directory with %s of Kubernetes %s", p.name, err, assetsVariable,
			strings.Join(givenBinaries, ", "), Minor)
	}
	module := filepath.Join(b.cache, ".pins-"+p.pins)
	if err := p.writePins(module); err != nil {
		return b.notWritable(err)
	}
	began, fresh := time.Now(), filepath.Join(b.cache, "."+p.name+".new")
	args := p.buildArgs()
	args = append(args[:len(args)-1:len(args)-1], "-o", fresh, p.pkg)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = module
	// What the caller's project needs is none of the pins' business, and flags that differ would compile everything again.
	cmd.Env = append(cmd.Environ(), "GOFLAGS=", "GOWORK=off", "CGO_ENABLED=0")
	log := &buildLog{}
	cmd.Stdout, cmd.Stderr = log, log
	doing := func() string {
		return fmt.Sprintf("builds %s in %s%s", p.name, b.cache, log)
	}
	if err := tell(b.progress, doing, func() error { return runGroup(cmd) }); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return fmt.Errorf("build %s with the pins in %s: %w; what go said: %s; it needs the Go module proxy once: GOPROXY", p.name, module, err, log.errors())
	}
	if err := os.Rename(fresh, b.path(p.name)); err != nil {
		return b.notWritable(err)
	}
	if took := time.Since(began); took > firstWord {
		fmt.Fprintf(b.progress, "control plane: built %s in %.0fs\n", p.name, took.Seconds())
	}
	return nil
}

// runGroup runs a command that starts others, which end with it.
func runGroup(cmd *exec.Cmd) (err error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	launch()(func() { err = cmd.Start() })
	if err != nil {
		return err
	}
	return cmd.Wait()
}

// buildLog counts the packages that go build -v names, which are those that it compiles, and keeps what else it says.
type buildLog struct {
	mu       sync.Mutex
	partial  []byte
	compiled int
	loaded   int
	other    []string
}

// Write takes what go prints, in any pieces.
func (l *buildLog) Write(data []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.partial = append(l.partial, data...)
	for {
		line, rest, whole := bytes.Cut(l.partial, []byte("\n"))
		if !whole {
			return len(data), nil
		}
		l.partial = rest
		switch text := string(line); {
		case strings.HasPrefix(text, "go: downloading "):
			l.loaded++
		case !strings.ContainsAny(text, " :"):
			l.compiled++
		default:
			l.other = append(l.other, text)
		}
	}
}

// String says how far it is, when it is more than linking.
func (l *buildLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.loaded+l.compiled < 20 {
		return ""
	}
	return fmt.Sprintf(": %d modules downloaded, %d packages compiled of about 2,000 for all programs; once, 4 to 10 minutes on 2 cores", l.loaded, l.compiled)
}

// errors are the last lines that are no progress.
func (l *buildLog) errors() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.other[max(0, len(l.other)-5):], "; ")
}

// kit is the module that this package is of.
const kit = "example.com/extension-apiserver"

// built are the files of main packages that this process built.
var built struct {
	sync.Mutex
	files map[string]string
}

// Build builds a main package and returns the file, which is in Go's build cache: go forgets it some days after its last use. The
// package is as go build takes it, in the module of the working directory: its import path, or ./... relative to the working
// directory, which in a test is that of its package. One of the kit is built with the pins of the kit, as its own project needs
// only those of what it imports. In a process a package is built once.
func Build(ctx context.Context, pkg string) (file string, err error) {
	built.Lock()
	defer built.Unlock()
	if file, found := built.files[pkg]; found {
		return file, nil
	}
	dir, settings := "", []string(nil)
	if strings.HasPrefix(pkg, kit+"/") {
		settings = []string{"GOWORK=off", "GOFLAGS=" + strings.ReplaceAll(os.Getenv("GOFLAGS"), "-mod=mod", "")}
		if dir, err = goOutput(ctx, "", nil, "list", "-m", "-f", "{{.Dir}}", kit); err != nil {
			return "", fmt.Errorf("find the kit in the module of the working directory: %w", err)
		}
	}
	// go run keeps what it links in Go's build cache, as go build does not. When it links, it tells of a file in a directory for
	// its own work, which is gone now; when it finds what was linked, of that. Sources may be edited meanwhile.
	for range 5 {
		file, err = goOutput(ctx, dir, settings, "run", "-exec=echo", "-ldflags="+versionFlags(pinned(Minor, "k8s.io/kubernetes")), pkg)
		if err != nil {
			return "", fmt.Errorf("build %s: %w", pkg, err)
		}
		if executable(file) {
			if built.files == nil {
				built.files = map[string]string{}
			}
			built.files[pkg] = file
			return file, nil
		}
	}
	return "", fmt.Errorf("build %s: its sources change while it is built, or go run did not keep it: there is no %q", pkg, file)
}

// goOutput returns what a go command prints.
func goOutput(ctx context.Context, dir string, settings []string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(cmd.Environ(), settings...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := runGroup(cmd); err != nil {
		return "", errors.Join(fmt.Errorf("go %s: %w", strings.Join(args, " "), err), errors.New(strings.TrimSpace(stderr.String())))
	}
	return strings.TrimSpace(stdout.String()), nil
}
