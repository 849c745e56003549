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

// kit is the module that this package is of.
const kit = "example.com/extension-apiserver"

// built are the files of main packages that this process built.
var built struct {
	sync.Mutex
	files map[string]string
}

// Build builds a main package and returns the file, which is in Go's build cache: go forgets it some days after its
// last use. The package is as go build takes it, in the module of the working directory: its import path, or ./...
// relative to the working directory, which in a test is that of its package. One of the kit is built with the pins of
// the kit, as its own project needs only those of what it imports. In a process a package is built once.
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
	// go run keeps what it links in Go's build cache, as go build does not. When it links, it tells of a file in a
	// directory for its own work, which is gone now; when it finds what was linked, of that. Sources may be edited
	// meanwhile.
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

// sources prints the directories of packages in the module under test, what they embed, and go.mod.
const sources = `{{if .Module}}{{if .Module.Main}}{{.Dir}}{{"\n"}}{{.Module.GoMod}}{{"\n"}}{{range .EmbedFiles}}{{$.Dir}}/{{.}}{{"\n"}}{{end}}{{end}}{{end}}`

// openSources opens what a main package is made of. go test takes a result from its cache as long as the test, and the
// files in its module that it opened, are the same; a test that runs a program does not import it.
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
	if err := controlplane.RunChild(cmd); err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, log.Failure())
	}
	return strings.TrimSpace(stdout.String()), nil
}
