// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"

	"example.com/extension-apiserver/internal/controlplane"
	"example.com/extension-apiserver/internal/gobuild"
)

// kit is the module of this package.
const kit = "example.com/extension-apiserver"

// built contains the files of the main packages that this process has built.
var built struct {
	sync.Mutex
	files map[string]string
}

// Build builds a main package and returns the path of the executable in Go's build cache. Go
// deletes the file some days after its last use. pkg is an argument of go build in the module of
// the working directory: an import path, or a path such as ./cmd/server relative to the working
// directory, which for a test is the directory of its package. Packages of the kit are built with
// the dependency versions of the kit, because a project requires only those that it imports. A
// process builds each package once.
func Build(ctx context.Context, pkg string) (file string, err error) {
	return buildWith(ctx, pkg, io.Discard)
}

// buildWith is Build with progress output.
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
	// go run, unlike go build, keeps the linked executable in Go's build cache. After linking, it
	// prints the path in its own work directory, which no longer exists. If the executable is
	// already cached, it prints the path in the cache. Sources may change meanwhile, so try
	// several times.
	for range 5 {
		log := &gobuild.Log{}
		list := goIn(ctx, dir, settings, append([]string{"list"}, gobuild.Stale(pkg)...)...)
		if err := log.WithProgress(progress, pkg, list, controlplane.RunChild, func() error {
			file, err = goOutput(ctx, log, dir, settings, "run", "-v", "-exec=echo",
				"-ldflags="+controlplane.VersionFlags(), pkg)
			return err
		}); err != nil {
			return "", fmt.Errorf("build %s: %w", pkg, err)
		}
		if controlplane.Executable(file) {
			if built.files == nil {
				built.files = map[string]string{}
			}
			built.files[pkg] = file
			return file, openSources(ctx, dir, settings, pkg)
		}
	}
	return "", fmt.Errorf("build %s: %q does not exist; its sources changed during the build, or go run did not keep it",
		pkg, file)
}

// sources is a template that prints the directories of packages in the module under test, the
// files that they embed, and go.mod.
const sources = `{{if .Module}}{{if .Module.Main}}{{.Dir}}{{"\n"}}{{.Module.GoMod}}{{"\n"}}{{range .EmbedFiles}}{{$.Dir}}/{{.}}{{"\n"}}{{end}}{{end}}{{end}}`

// openSources opens the sources of a main package. go test reuses a cached result while the test
// and the files of its module that it opened are unchanged. A test that runs a program does not
// import it, so its sources must be opened.
func openSources(ctx context.Context, dir string, settings []string, pkg string) error {
	paths, err := goOutput(ctx, &gobuild.Log{}, dir, settings, "list", "-deps", "-f", sources, pkg)
	if err != nil {
		return fmt.Errorf("find the sources of %s: %w", pkg, err)
	}
	for path := range strings.FieldsFuncSeq(paths, func(r rune) bool { return r == '\n' }) {
		f, err := os.Open(path)
		if err != nil {
			return fmt.Errorf("find the sources of %s: %w", pkg, err)
		}
		_ = f.Close() // nothing was written
	}
	return nil
}

// goIn returns a go command that runs in a directory with additional environment variables.
func goIn(ctx context.Context, dir string, settings []string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(cmd.Environ(), settings...)
	return cmd
}

// goOutput returns the standard output of a go command.
func goOutput(ctx context.Context, log *gobuild.Log, dir string, settings []string, args ...string) (string, error) {
	cmd := goIn(ctx, dir, settings, args...)
	var stdout bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, log
	if err := controlplane.RunChild(cmd); err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, log.Failure())
	}
	return strings.TrimSpace(stdout.String()), nil
}
