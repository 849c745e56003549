// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
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

// build builds programs of the same pins into the cache, under names of their own until they are whole. One command builds them all:
// what they share is compiled once, and one is linked while another compiles.
func (b *binaries) build(ctx context.Context, programs []program) error {
	var names, packages []string
	for _, p := range programs {
		names, packages = append(names, p.name), append(packages, p.pkg)
	}
	what := strings.Join(names, ", ")
	if _, err := exec.LookPath("go"); err != nil {
		return fmt.Errorf("build %s: %w; install Go, or set %s to a directory with %s of Kubernetes %s", what, err, assetsVariable,
			strings.Join(givenBinaries, ", "), Minor())
	}
	set := programs[0].set()
	module := filepath.Join(b.cache, ".pins-"+set)
	if err := writePins(set, module); err != nil {
		return b.notWritable(err)
	}
	fresh := filepath.Join(b.cache, ".new-"+set)
	if err := os.MkdirAll(fresh, 0o700); err != nil {
		return b.notWritable(err)
	}
	began, log := time.Now(), &buildLog{}
	doing := func() string { return cmp.Or(log.String(), fmt.Sprintf("builds %s in %s", what, b.cache)) }
	err := tell(b.progress, doing, func() error {
		if log.stale(ctx, module, packages) {
			fmt.Fprintf(b.progress, "control plane: builds %s once, in %s: %s\n", what, b.cache, log.estimate())
		}
		cmd := goInPins(ctx, module, append(append(buildArgs(set), "-v", "-o", fresh+string(filepath.Separator)), packages...))
		cmd.Stdout, cmd.Stderr = log, log
		return runGroup(cmd)
	})
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		hint := "it needs the Go module proxy once: GOPROXY"
		if strings.Contains(log.errors(), "no space left on device") {
			hint = "it needs 4 GB once, in the directories of go env GOCACHE GOMODCACHE GOTMPDIR, and 0.5 GB in that of " + cacheVariable
		}
		return fmt.Errorf("build %s with the pins in %s: %w; what go said: %s; %s", what, module, err, log.errors(), hint)
	}
	for _, p := range programs {
		if err := os.Rename(filepath.Join(fresh, p.execName()), b.path(p.name)); err != nil {
			return b.notWritable(err)
		}
	}
	if took := time.Since(began); took > firstWord {
		fmt.Fprintf(b.progress, "control plane: built %s in %.0fs\n", what, took.Seconds())
	}
	return nil
}

// download fetches the modules of what must be built, as far as it comes: what is wrong is said when they are built.
func (b *binaries) download(ctx context.Context, names ...string) {
	packages := map[string][]string{} // by their pins
	for _, p := range b.missing(names...) {
		packages[p.set()] = append(packages[p.set()], p.pkg)
	}
	for set, packages := range packages {
		module, err := os.MkdirTemp("", "pins-")
		if err != nil {
			return
		}
		defer os.RemoveAll(module)
		if writePins(set, module) == nil {
			_ = runGroup(goInPins(ctx, module, append([]string{"list", "-mod=readonly", "-deps"}, packages...)))
		}
	}
}

// goInPins is a go command in the module of pins. What the caller's project needs is none of the pins' business, and flags that differ
// would compile everything again.
func goInPins(ctx context.Context, module string, args []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = module
	cmd.Env = append(cmd.Environ(), "GOFLAGS=", "GOWORK=off", "CGO_ENABLED=0")
	return cmd
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
	total    int // of what must be compiled; 0 until that is known
	loaded   int
	other    []string
}

// secondsPerPackage is what one CPU takes to compile a package of a control plane, measured: 2,300 in 390 s on 2 CPUs.
const secondsPerPackage = 0.34

// stale counts the packages that must be compiled, for which their modules are downloaded, and tells whether they are many. Where it
// cannot, the build says why.
func (l *buildLog) stale(ctx context.Context, module string, packages []string) bool {
	cmd := goInPins(ctx, module, append([]string{"list", "-trimpath", "-mod=readonly", "-deps", "-f", "{{if .Stale}}{{.ImportPath}}{{end}}"}, packages...))
	var stdout bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, l
	if err := runGroup(cmd); err != nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total = len(strings.Fields(stdout.String()))
	return l.total > 100
}

// estimate says how long the build will take.
func (l *buildLog) estimate() string {
	minutes := float64(l.total) * secondsPerPackage / float64(runtime.GOMAXPROCS(0)) / 60
	return fmt.Sprintf("%d packages, about %.0f minutes with %d CPUs", l.total, math.Ceil(minutes), runtime.GOMAXPROCS(0))
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

// String says how far it is; nothing when it only links.
func (l *buildLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.total > 0 && l.compiled > 0:
		return fmt.Sprintf("%d of %d packages compiled", min(l.compiled, l.total), l.total)
	case l.loaded > 0:
		return fmt.Sprintf("%d modules downloaded", l.loaded)
	}
	return ""
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
		file, err = goOutput(ctx, dir, settings, "run", "-exec=echo", "-ldflags="+versionFlags(pinned(DefaultMinor, "k8s.io/kubernetes")), pkg)
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
