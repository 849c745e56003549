// SPDX-License-Identifier: Apache-2.0

package template

import (
	"path/filepath"
	"strings"
	"testing"

	"example.com/extension-apiserver/internal/scripttest"
)

const module = "git.example.org/team/factory-apiserver"

// TestTemplate is the first day of a team with the kit. Each step works on what the one before left.
func TestTemplate(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped in short mode")
	}
	dir := scripttest.CopyTree(t, filepath.Join("..", ".."))
	scripttest.Commit(t, dir)
	oldModule := strings.Fields(scripttest.Shell(t, dir, "go list -m"))[0]

	scripttest.Shell(t, dir, "make rename MODULE="+module)
	noMention(t, dir, oldModule, dotted(oldModule))
	scripttest.Commit(t, dir)
	scripttest.Shell(t, dir, "make generate")
	const changed = "git diff -U0 | sed -n 's/^%s\\([^+-]\\)/\\1/p' | sort"
	if before, after := scripttest.Shell(t, dir, strings.Replace(changed, "%s", "-", 1)), scripttest.Shell(t, dir, strings.Replace(changed, "%s", "+", 1)); before != after {
		t.Errorf("generated code changed after the rename, want it renamed like the rest, in another order at most:\n%s", scripttest.Shell(t, dir, "git diff"))
	}
	scripttest.Commit(t, dir)

	add := block(t, dir, "Add a kind")
	scripttest.Shell(t, dir, add)
	if out := scripttest.Shell(t, dir, "git status --porcelain | grep -v -e sample/ || true"); out != "" {
		t.Errorf("the new kind changed files beside the sample:\n%s", out)
	}
	scripttest.Commit(t, dir)
	if out := scripttest.Shell(t, dir, add); !strings.Contains(out, "there already, as it was asked for") {
		t.Errorf("the same command again: got %q, want that nothing is done", out)
	}
	scripttest.Shell(t, dir, block(t, dir, "Delete the sample"))
	if out := scripttest.Shell(t, dir, "git ls-files '*widget*'; git grep -il widget -- 'sample/*.go' ':!sample/docs' ':!sample/template' pkg/registry pkg/apiserver manifests/base manifests/components || true"); out != "" {
		t.Errorf("files that are named after the deleted kind or mention it:\n%s", out)
	}

	if out := scripttest.Shell(t, dir, "gofmt -l cmd internal pkg sample test"); out != "" {
		t.Errorf("files that are not formatted:\n%s", out)
	}
	scripttest.Shell(t, dir, "go vet ./...") // which compiles all
	out := scripttest.Shell(t, dir, "go test -short ./pkg/... ./cmd/... $(go list ./sample/... | grep -v -e /docs -e /template)")
	if want := "ok  \t" + module + "/sample/registry/workshop/sprocket"; !strings.Contains(out, want) {
		t.Errorf("tests after the rename: got no %q, want the new kind's among them:\n%s", want, out)
	}
}

// TestCostOfAKind: the smallest complete kind takes fewer than 200 lines by hand, tests aside.
func TestCostOfAKind(t *testing.T) {
	const files = "git ls-files '*gadget*' ':!*_test.go' ':!sample/apis/client'"
	if lines := strings.Fields(scripttest.Shell(t, filepath.Join("..", ".."), files+" | xargs cat | wc -l"))[0]; len(lines) > 3 || lines >= "200" {
		t.Errorf("lines of Gadget: got %s, want fewer than 200 in\n%s", lines, scripttest.Shell(t, filepath.Join("..", ".."), files))
	}
}

// block returns the first commands under a heading of docs/add-a-resource.md.
func block(t *testing.T, dir, heading string) string {
	t.Helper()
	commands := scripttest.Blocks(scripttest.Section(t, filepath.Join(dir, "docs", "add-a-resource.md"), heading))
	if len(commands) == 0 {
		t.Fatalf("docs/add-a-resource.md has no ```sh block under ## %s", heading)
	}
	return commands[0]
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
