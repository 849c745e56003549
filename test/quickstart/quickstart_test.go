// SPDX-License-Identifier: Apache-2.0

//go:build quickstart

package quickstart

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"example.com/extension-apiserver/internal/scripttest"
)

// section is the blocks of commands under a heading.
func section(t *testing.T, text, heading string) []string {
	t.Helper()
	_, rest, found := strings.Cut(text, "\n## "+heading+"\n")
	if !found {
		t.Fatalf("docs/quickstart.md has no heading %q", heading)
	}
	rest, _, _ = strings.Cut(rest, "\n## ")
	return scripttest.Blocks(rest)
}

// contains fails for each pattern that is not in what was printed.
func contains(t *testing.T, what, out string, patterns ...string) {
	t.Helper()
	for _, pattern := range patterns {
		if !regexp.MustCompile(pattern).MatchString(out) {
			t.Errorf("%s: got no %q in\n%s", what, pattern, out)
		}
	}
}

// TestQuickstart: from a checkout to a project whose kinds come and go, all but kind.
func TestQuickstart(t *testing.T) {
	// Not t.TempDir: the path of a Unix socket in it would be too long.
	parent, err := os.MkdirTemp("", "day-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(parent) })
	kit, dir := filepath.Join(parent, "kit"), filepath.Join(parent, "backup")
	scripttest.Shell(t, filepath.Join("..", ".."), "scripts/copy-tree.sh "+kit)
	scripttest.Commit(t, kit)
	data, err := os.ReadFile(filepath.Join(kit, "docs", "quickstart.md"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)

	began := time.Now()
	out := scripttest.Shell(t, kit, section(t, text, "A project")[0])
	contains(t, "make new", out, `files of your own with [0-9]+ lines`, `refers to the kit in .* by replace`)
	scripttest.Commit(t, dir)
	run := section(t, text, "Run it")
	running := scripttest.MakeRun(t, dir, run[0])
	out = scripttest.Shell(t, dir, run[1])
	t.Logf("from an empty directory to kubectl get: %.0f s", time.Since(began).Seconds())
	contains(t, "kubectl", out, `backupplan.backup.example.org/sample created`, `sample +0 3 \* \* \* +true`, `(?m)^backupplan.backup.example.org/sample$`, `schedule <string>|FIELD: schedule`)
	running.Interrupt(t)

	rule := section(t, text, "A rule")
	scripttest.Shell(t, dir, rule[0])
	scripttest.Shell(t, dir, rule[1])
	scripttest.Commit(t, dir)
	for _, heading := range []string{"A second kind", "A second version", "Delete the first kind", "Upgrade"} {
		for _, block := range section(t, text, heading) {
			began := time.Now()
			scripttest.Shell(t, dir, block)
			t.Logf("%s: %.0f s", heading, time.Since(began).Seconds())
		}
		scripttest.Commit(t, dir)
	}
	if out := scripttest.Shell(t, dir, "git grep -il backupplan -- ':!kit' || true"); out != "" {
		t.Errorf("files that mention the deleted kind:\n%s", out)
	}
	scripttest.Shell(t, dir, "make image")
}
