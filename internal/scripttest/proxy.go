// SPDX-License-Identifier: Apache-2.0

package scripttest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// ModuleProxy is a module proxy in a directory, for versions of a module that are published
// nowhere else (https://go.dev/ref/mod#goproxy-protocol).
type ModuleProxy struct {
	dir, path string
	next      int64
}

// NewModuleProxy returns an empty module proxy. Its versions have never been used before, and are
// removed from the module cache when the test ends.
func NewModuleProxy(t *testing.T) *ModuleProxy {
	t.Helper()
	return &ModuleProxy{dir: t.TempDir(), next: time.Now().UnixNano()}
}

// Publish adds a source tree as the newest version, and returns the version.
func (p *ModuleProxy) Publish(t *testing.T, tree string) (version string) {
	t.Helper()
	version = fmt.Sprintf("v0.0.%d", p.next)
	p.next++
	mod, err := os.ReadFile(filepath.Join(tree, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	p.path = modfile.ModulePath(mod)
	at := filepath.Join(p.dir, filepath.FromSlash(p.path), "@v")
	if err := os.MkdirAll(at, 0o700); err != nil {
		t.Fatal(err)
	}
	list, err := os.OpenFile(filepath.Join(at, "list"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer list.Close()
	if _, err := fmt.Fprintln(list, version); err != nil {
		t.Fatal(err)
	}
	Write(t, filepath.Join(at, version+".info"), fmt.Sprintf(`{"Version":%q,"Time":"2026-01-01T00:00:00Z"}`, version))
	Write(t, filepath.Join(at, version+".mod"), string(mod))
	file, err := os.Create(filepath.Join(at, version+".zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	// Binaries that were built in a checkout are not part of a module.
	if err := os.RemoveAll(filepath.Join(tree, "bin")); err != nil {
		t.Fatal(err)
	}
	if err := zip.CreateFromDir(file, module.Version{Path: p.path, Version: version}, tree); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.forget(t, version) })
	return version
}

// Environment returns variables that make the go command use this proxy first.
func (p *ModuleProxy) Environment(t *testing.T) []string {
	t.Helper()
	return []string{"GOPROXY=file://" + p.dir + "," + goenv(t, "GOPROXY"), "GONOSUMDB=" + p.path}
}

// forget removes a version from the module cache, because no test needs it again.
func (p *ModuleProxy) forget(t *testing.T, version string) {
	t.Helper()
	cache, path := goenv(t, "GOMODCACHE"), filepath.FromSlash(p.path)
	module := filepath.Join(cache, path) + "@" + version
	Shell(t, ".", "chmod -R u+w "+module+" || true; rm -rf "+module+" "+filepath.Join(cache, "cache", "download", path,
		"@v", version+".*"))
}

func goenv(t *testing.T, name string) string {
	t.Helper()
	return strings.TrimSpace(Shell(t, ".", "go env "+name))
}
