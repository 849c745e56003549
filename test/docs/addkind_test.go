// SPDX-License-Identifier: Apache-2.0

//go:build quickstart

package docs

import (
	"path/filepath"
	"strings"
	"testing"

	"example.com/extension-apiserver/internal/scripttest"
)

// TestAddKind runs "Add a kind" of docs/add-a-resource.md in a copy of the kit: the new kind is part of the sample and
// passes its tests.
func TestAddKind(t *testing.T) {
	dir := scripttest.CopyTree(t, filepath.Join("..", ".."))
	scripttest.Commit(t, dir)
	blocks := scripttest.Blocks(scripttest.Section(t, filepath.Join(dir, "docs", "add-a-resource.md"), "Add a kind"))
	if len(blocks) == 0 {
		t.Fatal(`docs/add-a-resource.md: "Add a kind" has no commands`)
	}
	scripttest.Shell(t, dir, blocks[0])
	if out := scripttest.Shell(t, dir, "git status --porcelain | grep -v -e sample/ || true"); out != "" {
		t.Errorf("the new kind changed files outside the sample:\n%s", out)
	}
	scripttest.Commit(t, dir)
	if out := scripttest.Shell(t, dir, blocks[0]); !strings.Contains(out, "there already, as it was asked for") {
		t.Errorf("the same command again: got %q, want that nothing is done", out)
	}
	if out := scripttest.Shell(t, dir, "gofmt -l sample"); out != "" {
		t.Errorf("files that are not formatted:\n%s", out)
	}
	out := scripttest.Shell(t, dir, "go vet ./sample/... ./test/... && go test ./sample ./sample/registry/...")
	if want := "ok  \texample.com/extension-apiserver/sample/registry/workshop/sprocket"; !strings.Contains(out, want) {
		t.Errorf("tests with the new kind: got no %q:\n%s", want, out)
	}
}
