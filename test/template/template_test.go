// SPDX-License-Identifier: Apache-2.0

package template

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"example.com/extension-apiserver/internal/scripttest"
)

const module = "git.example.org/team/factory-apiserver"

// TestTemplate is the first day of a team with the kit. Each step works on what the one before left.
func TestTemplate(t *testing.T) {
	dir := copyTree(t)
	oldModule := strings.Fields(scripttest.Shell(t, dir, "go list -m"))[0]

	scripttest.Shell(t, dir, "make rename MODULE="+module)
	noMention(t, dir, oldModule, dotted(oldModule))
	commit(t, dir)
	scripttest.Shell(t, dir, "make generate")
	const changed = "git diff -U0 | sed -n 's/^%s\\([^+-]\\)/\\1/p' | sort"
	if before, after := scripttest.Shell(t, dir, strings.Replace(changed, "%s", "-", 1)), scripttest.Shell(t, dir, strings.Replace(changed, "%s", "+", 1)); before != after {
		t.Errorf("generated code changed after the rename, want it renamed like the rest, in another order at most:\n%s", scripttest.Shell(t, dir, "git diff"))
	}
	commit(t, dir)

	scripttest.Shell(t, dir, block(t, dir, "Add a kind"))
	commit(t, dir)
	scripttest.Shell(t, dir, block(t, dir, "Delete the sample"))
	if out := scripttest.Shell(t, dir, "git ls-files '*widget*'; git grep -il widget -- 'sample/*.go' pkg/registry pkg/apiserver manifests/base || true"); out != "" {
		t.Errorf("files that are named after the deleted kind or mention it:\n%s", out)
	}

	if out := scripttest.Shell(t, dir, "gofmt -l cmd internal pkg sample test"); out != "" {
		t.Errorf("files that are not formatted:\n%s", out)
	}
	scripttest.Shell(t, dir, "go vet ./...") // which compiles all
	out := scripttest.Shell(t, dir, "go test ./pkg/... ./cmd/... ./sample/...")
	if want := "ok  \t" + module + "/sample/registry/sprocket"; !strings.Contains(out, want) {
		t.Errorf("tests after the rename: got no %q, want the new kind's among them:\n%s", want, out)
	}
}

// TestCostOfAKind: the smallest complete kind takes fewer than 200 lines by hand, tests aside.
func TestCostOfAKind(t *testing.T) {
	const files = "git ls-files '*gadget*' ':!*_test.go' ':!test/mutations' ':!sample/client'"
	if lines := strings.Fields(scripttest.Shell(t, filepath.Join("..", ".."), files+" | xargs cat | wc -l"))[0]; len(lines) > 3 || lines >= "200" {
		t.Errorf("lines of Gadget: got %s, want fewer than 200 in\n%s", lines, scripttest.Shell(t, filepath.Join("..", ".."), files))
	}
}

// TestRenameRefuses: every problem is reported in one run, and nothing is changed.
func TestRenameRefuses(t *testing.T) {
	dir := copyTree(t)
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

// copyTree returns a repository with the tree as it is on disk.
func copyTree(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	scripttest.Shell(t, filepath.Join("..", ".."), "scripts/copy-tree.sh "+dir)
	scripttest.Shell(t, dir, "git init -q")
	commit(t, dir)
	return dir
}

func commit(t *testing.T, dir string) {
	t.Helper()
	scripttest.Shell(t, dir, "git add -A && git -c user.name=test -c user.email=test@localhost commit --allow-empty -qm 'One step'")
}

// block returns the commands under a heading of docs/add-a-resource.md.
func block(t *testing.T, dir, heading string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "docs", "add-a-resource.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(data), "\n## "+heading+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	_, commands, found := strings.Cut(section, "\n```sh\n")
	commands, _, closed := strings.Cut(commands, "\n```\n")
	if !found || !closed {
		t.Fatalf("docs/add-a-resource.md has no ```sh block under ## %s", heading)
	}
	return commands
}

// noMention fails for each file that has one of the names.
func noMention(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		if out := scripttest.Shell(t, dir, "git grep -nF -- '"+name+"' || true"); out != "" {
			t.Errorf("files that mention %s after the rename:\n%s", name, out)
		}
	}
}

// dotted is a module as protobuf has it.
func dotted(module string) string { return strings.NewReplacer("/", ".", "-", "_").Replace(module) }
