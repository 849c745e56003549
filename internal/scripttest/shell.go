// SPDX-License-Identifier: Apache-2.0

package scripttest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// Shell runs commands as a user pastes them, but stops at the first that fails, and then fails the
// test. It returns their output.
func Shell(t *testing.T, dir, commands string, environment ...string) string {
	t.Helper()
	began := time.Now()
	// Not the test's own context, because cleanups run commands too.
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "bash", "-euo", "pipefail", "-c", commands)
	cmd.Dir = dir
	cmd.Env = append(append(os.Environ(), "CGO_ENABLED=0"), environment...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", commands, err, out)
	}
	if took := time.Since(began); took > time.Second {
		t.Logf("%s: %.0fs", commands, took.Seconds())
	}
	return string(out)
}

// Write creates a file and its directory.
func Write(t *testing.T, path, data string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
}

// CopyTree returns a directory with a copy of the tree at root as it is on disk, with its built
// control plane.
func CopyTree(t *testing.T, root string) string {
	t.Helper()
	// Not t.TempDir: the path of a Unix socket in it would be too long.
	dir, err := os.MkdirTemp("", "tree-") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	Shell(t, root, "scripts/copy-tree.sh "+dir)
	return dir
}

// Commit creates a Git repository in the directory, unless it is one, and commits its content.
func Commit(t *testing.T, dir string) {
	t.Helper()
	Shell(t, dir, "git init -q && git add -A && git -c user.name=test -c user.email=test@localhost commit "+
		"--allow-empty -qm 'One step'")
}
