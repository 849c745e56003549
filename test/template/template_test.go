// SPDX-License-Identifier: Apache-2.0

package template

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

const (
	module = "git.example.org/team/factory-apiserver"
	group  = "factory.example.org"
)

// TestTemplate is the first day of a team with the kit. Each step works on what the one before left.
func TestTemplate(t *testing.T) {
	dir := copyTree(t)
	oldModule := strings.Fields(shell(t, dir, "go list -m"))[0]
	oldGroup := regexp.MustCompile(`GroupName = "(.*)"`).FindStringSubmatch(shell(t, dir, "cat pkg/apis/*/register.go"))[1]

	shell(t, dir, "make rename MODULE="+module+" GROUP="+group)
	noMention(t, dir, oldModule, dotted(oldModule), oldGroup, reversed(oldGroup))
	commit(t, dir)
	shell(t, dir, "make generate")
	const changed = "git diff -U0 -- pkg | sed -n 's/^%s\\([^+-]\\)/\\1/p' | sort"
	if before, after := shell(t, dir, strings.Replace(changed, "%s", "-", 1)), shell(t, dir, strings.Replace(changed, "%s", "+", 1)); before != after {
		t.Errorf("generated code changed after the rename, want it renamed like the rest, in another order at most:\n%s", shell(t, dir, "git diff -- pkg"))
	}
	commit(t, dir)

	shell(t, dir, block(t, dir, "Add a kind"))
	commit(t, dir)
	shell(t, dir, block(t, dir, "Delete the sample"))
	if out := shell(t, dir, "git ls-files '*widget*'; git grep -il widget -- pkg/apis pkg/registry pkg/apiserver manifests/base || true"); out != "" {
		t.Errorf("files that are named after the deleted kind or mention it:\n%s", out)
	}

	if out := shell(t, dir, "gofmt -l cmd internal pkg sample test"); out != "" {
		t.Errorf("files that are not formatted:\n%s", out)
	}
	shell(t, dir, "go vet ./...") // which compiles all
	out := shell(t, dir, "go test ./pkg/... ./cmd/... ./sample/...")
	if want := "ok  \t" + module + "/pkg/registry/sprocket"; !strings.Contains(out, want) {
		t.Errorf("tests after the rename: got no %q, want the new kind's among them:\n%s", want, out)
	}
}

// TestCostOfAKind: the smallest complete kind takes fewer than 200 lines by hand, tests aside.
func TestCostOfAKind(t *testing.T) {
	const files = "git ls-files '*gadget*' ':!*_test.go' ':!test/mutations'"
	if lines := strings.Fields(shell(t, filepath.Join("..", ".."), files+" | xargs cat | wc -l"))[0]; len(lines) > 3 || lines >= "200" {
		t.Errorf("lines of Gadget: got %s, want fewer than 200 in\n%s", lines, shell(t, filepath.Join("..", ".."), files))
	}
}

// TestRenameRefuses: every problem is reported in one run, and nothing is changed.
func TestRenameRefuses(t *testing.T) {
	dir := copyTree(t)
	for _, tc := range []struct {
		name, module, group string
		prepare             string
		want                []string
	}{
		{"nothing given", "", "", "", []string{"MODULE is '', expected a Go module path", "GROUP is '', expected a lower-case DNS name"}},
		{"both wrong", "a b", "Things", "", []string{"MODULE is 'a b', expected a Go module path", "GROUP is 'Things', expected a lower-case DNS name"}},
		{"one label", module, "things", "", []string{"GROUP is 'things', expected a lower-case DNS name of two or more labels"}},
		{"group of Kubernetes", module, "things.k8s.io", "", []string{"GROUP is 'things.k8s.io': the domains k8s.io and kubernetes.io belong to the Kubernetes project"}},
		{"no Go package", module, "1st.example.org", "", []string{"GROUP is '1st.example.org': its first label names a Go package, expected it to begin with a letter"}},
		{"changes", "/", group, "touch new", []string{"MODULE is '/', expected a Go module path", "the tree has changes that are not committed"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			shell(t, dir, tc.prepare)
			before := shell(t, dir, "git status --porcelain")
			cmd := exec.CommandContext(t.Context(), "scripts/rename.sh", tc.module, tc.group)
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
			if after := shell(t, dir, "git status --porcelain"); after != before {
				t.Errorf("got changes, want none:\n%s", after)
			}
		})
	}
}

// TestRenameNames: names that are words of Go, that the code has for something else, or that contain the old name, still
// give a tree that compiles.
func TestRenameNames(t *testing.T) {
	for _, tc := range []struct{ module, group, goPackage string }{
		{module, "runtime.example.org", "runtimeapi"},
		{module, "type.example.org", "typeapi"},
		{module, "my-things.example.org", "mythings"},
		{"git.example.org/workshop/api", "things.workshop.org", "things"},
		{"things", "workshop.example.org", "workshop"},
	} {
		t.Run(tc.group, func(t *testing.T) {
			dir := copyTree(t)
			shell(t, dir, "make rename MODULE="+tc.module+" GROUP="+tc.group)
			if got := strings.TrimSpace(shell(t, dir, "go list -m")); got != tc.module {
				t.Errorf("module: got %s, want %s", got, tc.module)
			}
			data, err := os.ReadFile(filepath.Join(dir, "pkg", "apis", tc.goPackage, "register.go"))
			if want := `GroupName = "` + tc.group + `"`; !strings.Contains(string(data), want) {
				t.Errorf("pkg/apis/%s/register.go: got %s (%v), want %s", tc.goPackage, data, err, want)
			}
			shell(t, dir, `go build ./sample/... && test -z "$(gofmt -l cmd internal pkg sample test)"`)
		})
	}
}

// copyTree returns a repository with the tree as it is on disk.
func copyTree(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	shell(t, filepath.Join("..", ".."), "scripts/copy-tree.sh "+dir)
	shell(t, dir, "git init -q")
	commit(t, dir)
	return dir
}

func commit(t *testing.T, dir string) {
	t.Helper()
	shell(t, dir, "git add -A && git -c user.name=test -c user.email=test@localhost commit --allow-empty -qm 'One step'")
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
		if out := shell(t, dir, "git grep -nF -- '"+name+"' || true"); out != "" {
			t.Errorf("files that mention %s after the rename:\n%s", name, out)
		}
	}
}

// dotted is a module as protobuf has it, reversed a group as OpenAPI has it.
func dotted(module string) string { return strings.NewReplacer("/", ".", "-", "_").Replace(module) }

func reversed(group string) string {
	var labels []string
	for label := range strings.SplitSeq(group, ".") {
		labels = append([]string{label}, labels...)
	}
	return strings.Join(labels, ".")
}

// shell runs commands as a person pastes them, but stops at the first that fails.
func shell(t *testing.T, dir, commands string) string {
	t.Helper()
	began := time.Now()
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", commands)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", commands, err, out)
	}
	if took := time.Since(began); took > time.Second {
		t.Logf("%s: %.0fs", commands, took.Seconds())
	}
	return string(out)
}
