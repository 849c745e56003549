// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"example.com/extension-apiserver/internal/scripttest"
)

// diagram is a Mermaid block of a page.
type diagram struct{ page, text string }

func diagrams(t *testing.T) []diagram {
	t.Helper()
	root := os.DirFS(filepath.Join("..", ".."))
	var out []diagram
	err := fs.WalkDir(root, ".", func(path string, entry fs.DirEntry, err error) error {
		if name := entry.Name(); err == nil && entry.IsDir() &&
			(name == "bin" || strings.HasPrefix(name, ".") && name != ".") {
			return fs.SkipDir
		}
		if err != nil || !strings.HasSuffix(path, ".md") {
			return err
		}
		page, err := fs.ReadFile(root, path)
		for _, block := range regexp.MustCompile("(?ms)^```mermaid\n(.*?)^```$").FindAllStringSubmatch(
			string(page), -1) {
			out = append(out, diagram{path, block[1]})
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// coloured matches colours, which fit only one of GitHub's themes, light or dark.
var coloured = regexp.MustCompile(
	`(?m)%%{|^\s*(style|classDef|linkStyle|rect|box)\b|#[0-9a-fA-F]{3,8}\b|rgba?\(|fill:|stroke:`)

// TestMermaid: Mermaid itself reads each diagram, and none has colours of its own.
func TestMermaid(t *testing.T) {
	t.Parallel()
	all := diagrams(t)
	for _, d := range all {
		if found := coloured.FindString(d.text); found != "" {
			t.Errorf("%s: a diagram has %q; leave colours to the theme of the reader", d.page, strings.TrimSpace(found))
		}
	}
	texts := []string{}
	for _, d := range all {
		texts = append(texts, d.text)
	}
	wrong := parseMermaid(t, texts)
	for i, d := range all {
		if wrong[i] != nil {
			t.Errorf("%s: Mermaid reports %s for:\n%s", d.page, *wrong[i], d.text)
		}
	}
}

// parseMermaid returns for each diagram what Mermaid says is wrong, or nil.
func parseMermaid(t *testing.T, texts []string) []*string {
	t.Helper()
	from := filepath.Join("testdata", "mermaid")
	// Modules are looked for beside the script.
	dir := t.TempDir()
	script, err := os.ReadFile(filepath.Join(from, "parse.mjs"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "parse.mjs"), script, 0o600); err != nil {
		t.Fatal(err)
	}
	packages, err := scripttest.NPM(t.Context(), from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(packages, "node_modules"), filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	input, err := json.Marshal(texts)
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "node", "parse.mjs")
	cmd.Dir, cmd.Stdin, cmd.Stderr = dir, bytes.NewReader(input), &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("node parse.mjs: %v\n%s", err, &stderr)
	}
	var wrong []*string
	if err := json.Unmarshal(out, &wrong); err != nil || len(wrong) != len(texts) {
		t.Fatalf("%d results for %d diagrams: %v\n%s", len(wrong), len(texts), err, out)
	}
	return wrong
}
