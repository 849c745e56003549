// SPDX-License-Identifier: Apache-2.0

package scaffold

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"example.com/extension-apiserver/internal/gobuild"
)

// tools are the commands that a project needs besides Go, with hints how to install them.
var tools = map[string]string{
	"git":    "install git",
	"bash":   "install bash",
	"protoc": "install it (Debian: apt-get install protobuf-compiler)",
}

// checkTools returns an error for each missing command.
func checkTools() []error {
	var problems []error
	for _, name := range []string{"bash", "git", "protoc"} {
		if _, err := exec.LookPath(name); err != nil {
			problems = append(problems, fmt.Errorf("command %s not found; %s", name, tools[name]))
		}
	}
	return problems
}

// work changes a project and reports progress.
type work struct {
	ctx context.Context
	out io.Writer
}

// step runs do and reports its progress, and its duration if that is over two seconds.
func (w work) step(what string, do func() error) error {
	fmt.Fprintf(w.out, "%s ...\n", what)
	began := time.Now()
	if err := gobuild.WithProgress(w.out, func() string {
		return fmt.Sprintf("  %.0f s", time.Since(began).Seconds())
	}, do); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if took := time.Since(began); took > 2*time.Second {
		fmt.Fprintf(w.out, "  done after %.0f s\n", took.Seconds())
	}
	return nil
}

// run runs a command in a directory. The error has the command's output.
func (w work) run(dir string, env []string, name string, args ...string) error {
	_, err := w.output(dir, env, name, args...)
	return err
}

// output runs a command as run does, and returns its standard output.
func (w work) output(dir string, env []string, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(w.ctx, name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if w.ctx.Err() != nil {
			return nil, errors.New("interrupted; nothing was changed")
		}
		return nil, fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err,
			bytes.TrimSpace(append(stdout.Bytes(), stderr.Bytes()...)))
	}
	return stdout.Bytes(), nil
}

// change edits a copy of the project, generates and compiles the code there, and copies the result
// back. If a step fails or is interrupted, the project stays unchanged.
func (w work) change(p *project, what string, edit func(*project) error) error {
	unlock, err := lock(p.dir)
	if err != nil {
		return err
	}
	defer unlock()
	// A sibling directory, so that relative paths in go.mod stay valid.
	stage, err := os.MkdirTemp(filepath.Dir(p.dir), "."+filepath.Base(p.dir)+"-scaffold-")
	if err != nil {
		return fmt.Errorf("copy the project: %w", err)
	}
	defer func() { _ = os.RemoveAll(stage) }()
	names, err := listed(p.dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := copyFile(filepath.Join(p.dir, name), filepath.Join(stage, name)); err != nil {
			return err
		}
	}
	staged := &project{dir: stage, base: p.base, module: p.module}
	if err := edit(staged); err != nil {
		return err
	}
	if err := w.generate(staged); err != nil {
		return err
	}
	if err := w.ctx.Err(); err != nil {
		return errors.New("interrupted; nothing was changed")
	}
	return w.copyBack(p, stage, names, what)
}

// lock prevents that two commands change a project at the same time.
func lock(dir string) (unlock func(), err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("another scaffold command is running in %s", dir)
	}
	// A command that was killed left its copy.
	// the pattern is right
	left, _ := filepath.Glob(filepath.Join(filepath.Dir(dir), "."+filepath.Base(dir)+"-scaffold-*"))
	for _, path := range left {
		_ = os.RemoveAll(path)
	}
	return func() { _ = f.Close() }, nil
}

// listed returns the files that Git tracks or would track.
func listed(dir string) ([]string, error) {
	cmd := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files in %s: %w; a project must be a Git repository; run: git init", dir,
			err)
	}
	var names []string
	for name := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		if name != "" && exists(filepath.Join(dir, name)) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, nil
}

func copyFile(from, to string) error {
	info, err := os.Lstat(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil { //nolint:gosec // as Git makes it
		return err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return os.Symlink(target, to)
	}
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, info.Mode().Perm())
}

// generate generates code, tidies the modules and compiles the project.
func (w work) generate(p *project) error {
	scripts, types := filepath.Join(p.dir, "scripts"), "sample/apis=sample/openapi"
	if p.owned() {
		scripts, types = filepath.Join(p.dir, "kit", "scripts"), "apis=openapi"
	}
	// Without flags in the environment, use those of make, so that Go does not compile everything
	// twice.
	env := []string{"ROOT=" + p.dir, "GOFLAGS=" + cmp.Or(os.Getenv("GOFLAGS"), gobuild.Flags) + " -buildvcs=false",
		"CGO_ENABLED=" + cmp.Or(os.Getenv("CGO_ENABLED"), "0")}
	if err := w.step("Generating code", func() error {
		return w.run(p.dir, env, "bash", filepath.Join(scripts, "generate.sh"), types)
	}); err != nil {
		return err
	}
	modules := []string{p.dir}
	if p.owned() {
		modules = []string{p.path("apis"), p.dir}
	}
	if err := w.step("Tidying modules", func() error {
		for _, dir := range modules {
			if err := w.run(dir, nil, "go", "mod", "tidy"); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	return w.step("Compiling", func() error {
		if err := w.run(p.dir, env, "go", "vet", "./..."); err != nil {
			return err
		}
		manifest, err := w.output(p.dir, env, "go", "run", "./cmd/"+p.server(), "apiservices", "--kustomize")
		if err != nil {
			return err
		}
		path := p.path("manifests", "api", "apiservices.yaml")
		if err := os.WriteFile(path, manifest, 0o644); err != nil { //nolint:gosec // as Git makes it
			return err
		}
		return w.writeRoles(p, env)
	})
}

// server returns the name of the command that serves the API.
func (p *project) server() string {
	if !p.owned() {
		return "extension-apiserver"
	}
	entries, _ := os.ReadDir(p.path("cmd")) // what is not there has no entry
	for _, entry := range entries {
		if strings.HasSuffix(entry.Name(), "apiserver") {
			return entry.Name()
		}
	}
	return filepath.Base(p.module)
}

// copyBack copies the changes to the project. api.go, which lists what is served, comes last.
func (w work) copyBack(p *project, stage string, before []string, what string) error {
	after, err := walk(stage)
	if err != nil {
		return err
	}
	last := filepath.Join(p.base, "api.go")
	after = append(slices.DeleteFunc(after, func(name string) bool { return name == last }), last)
	var created, changed, deleted []string
	for _, name := range after {
		from, to := filepath.Join(stage, name), filepath.Join(p.dir, name)
		have, haveErr := os.ReadFile(to)
		want, err := os.ReadFile(from)
		switch {
		case err != nil:
			return err
		case haveErr == nil && bytes.Equal(have, want):
			continue
		case haveErr == nil:
			changed = append(changed, name)
		default:
			created = append(created, name)
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil { //nolint:gosec // as Git makes it
			return err
		}
		if err := os.Rename(from, to); err != nil {
			return err
		}
	}
	for _, name := range before {
		if slices.Contains(after, name) {
			continue
		}
		deleted = append(deleted, name)
		if err := os.Remove(filepath.Join(p.dir, name)); err != nil {
			return err
		}
		for dir := filepath.Dir(name); dir != "." && os.Remove(
			filepath.Join(p.dir, dir)) == nil; dir = filepath.Dir(dir) {
			continue
		}
	}
	w.summary(what, created, changed, deleted)
	return nil
}

func (w work) summary(what string, created, changed, deleted []string) {
	fmt.Fprintf(w.out, "%s\n", what)
	for _, list := range []struct {
		verb  string
		names []string
	}{{"created", created}, {"changed", changed}, {"deleted", deleted}} {
		var generated int
		for _, name := range list.names {
			if base := filepath.Base(name); strings.HasPrefix(base, "zz_generated.") ||
				strings.HasPrefix(base, "generated.") ||
				strings.Contains(name, "apis/client/") || strings.HasSuffix(name, "go.sum") {
				generated++
				continue
			}
			fmt.Fprintf(w.out, "  %s %s\n", list.verb, name)
		}
		if generated > 0 {
			fmt.Fprintf(w.out, "  %s %d generated files\n", list.verb, generated)
		}
	}
}

// walk returns the files of a directory, except build output.
func walk(dir string) ([]string, error) {
	var names []string
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		switch {
		case entry.IsDir() && slices.Contains([]string{"bin", ".git", ".run", ".kind"}, name):
			return fs.SkipDir
		case !entry.IsDir():
			names = append(names, name)
		}
		return nil
	})
	return names, err
}
