// SPDX-License-Identifier: Apache-2.0

// Package rename tests scripts/rename.sh.
package rename

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"example.com/extension-apiserver/internal/scripttest"
)

// TestRenameRefuses: every problem is reported in one run, and nothing is changed.
func TestRenameRefuses(t *testing.T) {
	dir := scripttest.CopyTree(t, filepath.Join("..", ".."))
	scripttest.Commit(t, dir)
	for _, tc := range []struct {
		name, module string
		prepare      string
		want         []string
	}{
		{"nothing given", "", "", []string{"MODULE is '', expected a Go module path"}},
		{"wrong", "a b", "", []string{"MODULE is 'a b', expected a Go module path"}},
		{"wrong, and changes", "/", "touch new", []string{"MODULE is '/', expected a Go module path", "the tree has changes that are not committed"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			scripttest.Shell(t, dir, tc.prepare)
			before := scripttest.Shell(t, dir, "git status --porcelain")
			cmd := exec.CommandContext(t.Context(), "scripts/rename.sh", tc.module)
			cmd.Dir = dir
			out, err := cmd.CombinedOutput()
			if code := cmd.ProcessState.ExitCode(); code != 2 {
				t.Errorf("got exit code %d (%v), want 2", code, err)
			}
			lines := strings.Split(strings.TrimSpace(string(out)), "\n")
			for i, want := range tc.want {
				if i >= len(lines) || !strings.HasPrefix(lines[i], "rename: "+want) {
					t.Errorf("line %d: got\n%s\nwant rename: %s", i, out, want)
				}
			}
			if len(lines) != len(tc.want) {
				t.Errorf("got %d lines, want %d:\n%s", len(lines), len(tc.want), out)
			}
			if after := scripttest.Shell(t, dir, "git status --porcelain"); after != before {
				t.Errorf("got changes, want none:\n%s", after)
			}
		})
	}
}
