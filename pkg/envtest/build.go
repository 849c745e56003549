// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"example.com/extension-apiserver/internal/gobuild"
)

// build builds programs of the same pins into the cache, under names of their own until they are whole. One command builds them all:
// what they share is compiled once, and one is linked while another compiles.
func (b *binaries) build(ctx context.Context, programs []program) error {
	var names, packages []string
	for _, p := range programs {
		names, packages = append(names, p.name), append(packages, p.pkg)
	}
	what := strings.Join(names, ", ")
	if _, err := exec.LookPath("go"); err != nil {
		return fmt.Errorf("build %s: %w; install Go, or have %[1]s of Kubernetes %[3]s in the directory that %[4]s names", what, err, Minor(), assetsVariable)
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
	began, log := time.Now(), &gobuild.Log{}
	doing := func() string {
		return "control plane: " + cmp.Or(log.String(), fmt.Sprintf("builds %s in %s", what, b.cache))
	}
	err := gobuild.Tell(b.progress, doing, func() error {
		if log.CountStale(goInPins(ctx, module, append([]string{"list", "-trimpath", "-mod=readonly"}, gobuild.Stale(packages...)...)), runGroup) {
			fmt.Fprintf(b.progress, "control plane: builds %s once, in %s: %s\n", what, b.cache, log.Estimate())
		}
		cmd := goInPins(ctx, module, append(append(buildArgs(set), "-v", "-o", fresh+string(filepath.Separator)), packages...))
		cmd.Stdout, cmd.Stderr = log, log
		return runGroup(cmd)
	})
	if ctx.Err() != nil {
		return fmt.Errorf("build %s: %w", what, context.Cause(ctx))
	}
	if err != nil {
		return fmt.Errorf("build %s with the pins in %s: %w\n%s", what, module, err, log.Failure())
	}
	for _, p := range programs {
		if err := os.Rename(filepath.Join(fresh, p.execName()), b.path(p.name)); err != nil {
			return b.notWritable(err)
		}
	}
	if took := time.Since(began); took > gobuild.FirstWord {
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
	return goIn(ctx, module, []string{"GOFLAGS=", "GOWORK=off", "CGO_ENABLED=0"}, args...)
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
	return buildWith(ctx, pkg, io.Discard)
}

// buildWith tells how far it is.
func buildWith(ctx context.Context, pkg string, progress io.Writer) (file string, err error) {
	built.Lock()
	defer built.Unlock()
	if file, found := built.files[pkg]; found {
		return file, nil
	}
	dir, settings := "", []string(nil)
	if strings.HasPrefix(pkg, kit+"/") {
		settings = []string{"GOWORK=off", "GOFLAGS=" + strings.ReplaceAll(os.Getenv("GOFLAGS"), "-mod=mod", "")}
		if dir, err = goOutput(ctx, &gobuild.Log{}, "", nil, "list", "-m", "-f", "{{.Dir}}", kit); err != nil {
			return "", fmt.Errorf("find the kit in the module of the working directory: %w", err)
		}
	}
	// go run keeps what it links in Go's build cache, as go build does not. When it links, it tells of a file in a directory for
	// its own work, which is gone now; when it finds what was linked, of that. Sources may be edited meanwhile.
	for range 5 {
		log := &gobuild.Log{}
		list := goIn(ctx, dir, settings, append([]string{"list"}, gobuild.Stale(pkg)...)...)
		if err := log.Tell(progress, pkg, list, runGroup, func() error {
			file, err = goOutput(ctx, log, dir, settings, "run", "-v", "-exec=echo", "-ldflags="+versionFlags(pinned(DefaultMinor, "k8s.io/kubernetes")), pkg)
			return err
		}); err != nil {
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

// goIn is a go command in a directory.
func goIn(ctx context.Context, dir string, settings []string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(cmd.Environ(), settings...)
	return cmd
}

// goOutput returns what a go command prints, but for its progress.
func goOutput(ctx context.Context, log *gobuild.Log, dir string, settings []string, args ...string) (string, error) {
	cmd := goIn(ctx, dir, settings, args...)
	var stdout bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, log
	if err := runGroup(cmd); err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, log.Failure())
	}
	return strings.TrimSpace(stdout.String()), nil
}
