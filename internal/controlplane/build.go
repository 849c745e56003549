// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"example.com/extension-apiserver/internal/gobuild"
)

// build builds programs of the same pins into the cache, under temporary names until they are
// complete. One command builds them all: it compiles shared packages once, and links one program
// while it compiles another.
func (b *Binaries) build(ctx context.Context, programs []program) error {
	var names, packages []string
	for _, p := range programs {
		names, packages = append(names, p.name), append(packages, p.pkg)
	}
	what := strings.Join(names, ", ")
	if _, err := exec.LookPath("go"); err != nil {
		return fmt.Errorf("build %s: %w; install Go, or put %[1]s of Kubernetes %[3]s into the directory in "+
			"%[4]s", what, err, Minor(), assetsVariable)
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
		return "control plane: " + cmp.Or(log.String(), fmt.Sprintf("building %s in %s", what, b.cache))
	}
	err := gobuild.WithProgress(b.progress, doing, func() error {
		list := slices.Concat([]string{"list", "-mod=readonly"}, strings.Fields(gobuild.Flags),
			gobuild.Stale(packages...))
		if log.CountStale(goInPins(ctx, module, list), RunChild) {
			fmt.Fprintf(b.progress, "control plane: building %s once, in %s: %s\n", what, b.cache, log.Estimate())
		}
		cmd := goInPins(ctx, module, slices.Concat(buildArgs(set),
			[]string{"-v", "-o", fresh + string(filepath.Separator)}, packages))
		cmd.Stdout, cmd.Stderr = log, log
		return RunChild(cmd)
	})
	if ctx.Err() != nil {
		return fmt.Errorf("build %s: %w", what, context.Cause(ctx))
	}
	if err != nil {
		return fmt.Errorf("build %s with the pins in %s: %w\n%s", what, module, err, log.Failure())
	}
	for _, p := range programs {
		if err := os.Rename(filepath.Join(fresh, p.execName()), b.Path(p.name)); err != nil {
			return b.notWritable(err)
		}
	}
	if took := time.Since(began); took > gobuild.FirstWord {
		fmt.Fprintf(b.progress, "control plane: built %s in %.0fs\n", what, took.Seconds())
	}
	return nil
}

// Download fetches the modules of the programs that must be built, as far as possible. It ignores
// errors, because the build reports them.
func (b *Binaries) Download(ctx context.Context, names ...string) {
	packages := map[string][]string{} // by their pins
	for _, p := range b.missing(names...) {
		packages[p.set()] = append(packages[p.set()], p.pkg)
	}
	for set, packages := range packages {
		module, err := os.MkdirTemp("", "pins-")
		if err != nil {
			return
		}
		defer func() { _ = os.RemoveAll(module) }()
		if writePins(set, module) == nil {
			_ = RunChild(goInPins(ctx, module, append([]string{"list", "-mod=readonly", "-deps"}, packages...)))
		}
	}
}

// goInPins returns a go command in the module of pins. The settings of the caller's project do not
// apply, and different flags would compile everything again.
func goInPins(ctx context.Context, module string, args []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = module
	cmd.Env = append(cmd.Environ(), "GOFLAGS=", "GOWORK=off", "CGO_ENABLED=0")
	return cmd
}
