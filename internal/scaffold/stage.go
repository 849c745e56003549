// SPDX-License-Identifier: Apache-2.0

package scaffold

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/gofrs/flock"

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
// back. If a step fails or is interrupted, or if another program changes a file of the result
// meanwhile, the project stays unchanged. The caller holds the lock of the project.
func (w work) change(p *project, what string, edit func(*project) error) error {
	// A sibling directory, so that relative paths in go.mod stay valid.
	stage, err := os.MkdirTemp(filepath.Dir(p.dir), "."+filepath.Base(p.dir)+"-scaffold-")
	if err != nil {
		return fmt.Errorf("copy the project: %w", err)
	}
	defer func() { _ = os.RemoveAll(stage) }()
	began, err := p.copyTo(stage)
	if err != nil {
		return err
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
	result, err := p.compare(stage, began)
	if err != nil {
		return err
	}
	if err := p.copyBack(stage, result); err != nil {
		return err
	}
	w.summary(what, result)
	return nil
}

// lock prevents that two commands change a project at the same time. It returns an error if
// another command holds the lock. The kernel releases the lock when the process exits.
func (p *project) lock() (unlock func(), err error) {
	lock := flock.New(p.dir, flock.SetFlag(os.O_RDONLY))
	locked, err := lock.TryLock()
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", p.dir, err)
	}
	if !locked {
		return nil, fmt.Errorf("another scaffold command is running in %s", p.dir)
	}
	// A command that was killed left its copy.
	// the pattern is right
	left, _ := filepath.Glob(filepath.Join(filepath.Dir(p.dir), "."+filepath.Base(p.dir)+"-scaffold-*"))
	for _, path := range left {
		_ = os.RemoveAll(path)
	}
	return func() { _ = lock.Close() }, nil
}

// snapshot has the fingerprints of a project's files by name.
type snapshot struct {
	copied  map[string]string // the files that Git tracks or would track
	ignored map[string]string // the files that Git ignores
}

// copyTo copies the files that Git tracks or would track to a directory, and returns what it
// copied.
func (p *project) copyTo(stage string) (snapshot, error) {
	s := snapshot{copied: map[string]string{}, ignored: map[string]string{}}
	names, err := p.listed("--cached", "--others")
	if err != nil {
		return s, err
	}
	for _, name := range names {
		to := filepath.Join(stage, name)
		if err := copyFile(p.file(name), to); err != nil {
			return s, err
		}
		if s.copied[name], err = fingerprint(to); err != nil {
			return s, err
		}
	}
	// A team may ignore generated code, which the command writes too.
	if names, err = p.listed("--others", "--ignored"); err != nil {
		return s, err
	}
	for _, name := range names {
		if top, _, _ := strings.Cut(name, "/"); slices.Contains(outputs, top) {
			continue
		}
		if sum, err := fingerprint(p.file(name)); err == nil { // a file that cannot be read is no generated code
			s.ignored[name] = sum
		}
	}
	return s, nil
}

// fingerprint identifies the content of a file, or the target of a symbolic link. It is empty if
// nothing exists at the path.
func fingerprint(path string) (string, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", err
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := os.Readlink(path)
		return "link to " + target, err
	case !info.Mode().IsRegular():
		return info.Mode().Type().String(), nil
	}
	data, err := os.ReadFile(path)
	return fmt.Sprintf("%x", sha256.Sum256(data)), err
}

// listed returns the existing files that git ls-files prints with the flags.
func (p *project) listed(flags ...string) ([]string, error) {
	cmd := exec.Command("git", append([]string{"ls-files", "-z", "--exclude-standard"}, flags...)...)
	cmd.Dir = p.dir
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files in %s: %w; a project must be a Git repository; run: git init", p.dir,
			err)
	}
	names := slices.Sorted(strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00"))
	return slices.DeleteFunc(slices.Compact(names), func(name string) bool {
		return name == "" || !exists(p.file(name))
	}), nil
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
	env := append(goEnv(), "ROOT="+p.dir)
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

// goEnv returns variables for go commands. Without flags in the environment, they use those of make,
// so that Go does not compile everything twice.
func goEnv() []string {
	return []string{"GOFLAGS=" + cmp.Or(os.Getenv("GOFLAGS"), gobuild.Flags) + " -buildvcs=false",
		"CGO_ENABLED=" + cmp.Or(os.Getenv("CGO_ENABLED"), "0")}
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

// result lists the files that a command creates, changes and deletes.
type result struct{ created, changed, deleted []string }

// compare returns how the stage differs from what was copied to it. It returns an error if another
// program changed one of these files in the project since then.
func (p *project) compare(stage string, began snapshot) (result, error) {
	var r result
	names, err := walk(stage)
	if err != nil {
		return r, err
	}
	names = slices.AppendSeq(names, maps.Keys(began.copied))
	slices.Sort(names)
	var conflicts []string
	for _, name := range slices.Compact(names) {
		before := cmp.Or(began.copied[name], began.ignored[name])
		want, err := fingerprint(filepath.Join(stage, name))
		if err != nil {
			return r, err
		}
		have, err := fingerprint(p.file(name))
		if err != nil {
			return r, err
		}
		switch {
		case want == before || want == have:
		case have != before:
			conflicts = append(conflicts, name)
		case want == "":
			r.deleted = append(r.deleted, name)
		case have == "":
			r.created = append(r.created, name)
		default:
			r.changed = append(r.changed, name)
		}
	}
	if len(conflicts) > 0 {
		return r, fmt.Errorf("write %s: changed while the command ran; nothing was written; run the command again",
			strings.Join(conflicts, ", "))
	}
	return r, nil
}

// copyBack makes the changes in the project. api.go, which lists what is served, comes last of the
// files that are written.
func (p *project) copyBack(stage string, r result) error {
	last := filepath.Join(p.base, "api.go")
	names := slices.Concat(r.created, r.changed)
	if i := slices.Index(names, last); i >= 0 {
		names = append(slices.Delete(names, i, i+1), last)
	}
	for _, name := range names {
		if err := os.MkdirAll(filepath.Dir(p.file(name)), 0o755); err != nil { //nolint:gosec // as Git makes it
			return err
		}
		if err := os.Rename(filepath.Join(stage, name), p.file(name)); err != nil {
			return err
		}
	}
	for _, name := range r.deleted {
		if err := os.Remove(p.file(name)); err != nil {
			return err
		}
		for dir := filepath.Dir(name); dir != "." && os.Remove(p.file(dir)) == nil; dir = filepath.Dir(dir) {
			continue
		}
	}
	return nil
}

func (w work) summary(what string, r result) {
	fmt.Fprintf(w.out, "%s\n", what)
	for _, list := range []struct {
		verb  string
		names []string
	}{{"created", r.created}, {"changed", r.changed}, {"deleted", r.deleted}} {
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

// outputs are the folders of a project with build output, and .git.
var outputs = []string{"bin", ".git", ".run", ".kind"}

// walk returns the files of a directory, except those in outputs.
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
		case entry.IsDir() && slices.Contains(outputs, name):
			return fs.SkipDir
		case !entry.IsDir():
			names = append(names, name)
		}
		return nil
	})
	return names, err
}
