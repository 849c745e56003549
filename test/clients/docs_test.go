// SPDX-License-Identifier: Apache-2.0

package clients

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// documented returns the code blocks of docs/operate/clients.md by language, with namespace
// instead of the namespace default.
func documented(t *testing.T, namespace string) map[string]string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "operate", "clients.md"))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer(`"default"`, `"`+namespace+`"`, "'default'", "'"+namespace+"'").Replace(string(page))
	blocks := map[string]string{}
	for _, m := range regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$").FindAllStringSubmatch(text, -1) {
		blocks[m[1]] += m[2]
	}
	if got, want := slices.Sorted(maps.Keys(blocks)), []string{"js", "python", "sh", "text", "ts"}; !slices.Equal(got, want) {
		t.Fatalf("docs/operate/clients.md has blocks in the languages %v, want %v", got, want)
	}
	return blocks
}

// TestDocumented checks that the examples of the page have the output that the page shows.
func TestDocumented(t *testing.T) {
	dir, blocks := scriptDir(t), documented(t, shared.NewNamespace(t))
	user, kubeconfig := withCertificate(t, "reader-of-the-page")
	grant(t, user, "widgets")
	for _, tc := range []struct{ language, file, command, want string }{
		{"python", "page.py", python, "python Standard\n"},
		{"js", "page.mjs", "node", "javascript Standard\npython Standard\n"},
	} {
		if err := os.WriteFile(filepath.Join(dir, tc.file), []byte(blocks[tc.language]), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := inDir(t, dir, kubeconfig, tc.command, tc.file); err != nil || out != tc.want {
			t.Errorf("%s: got %v and\n%s\nwant\n%s", tc.language, err, out, tc.want)
		}
	}
}

// TestTypes checks that the page's command generates TypeScript types with which the page's
// object compiles, and that invalid variants of the object do not compile.
func TestTypes(t *testing.T) {
	dir, blocks := scriptDir(t), documented(t, "default")
	_, kubeconfig := withCertificate(t, "reader-of-the-page")
	if out, err := inDir(t, dir, kubeconfig, "bash", "-euo", "pipefail", "-c", blocks["sh"]); err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	files := map[string]struct{ old, replacement, want string }{
		"page.ts":     {},
		"unknown.ts":  {"replicas:", "replicass:", "'replicass' does not exist in type"},
		"type.ts":     {"replicas: 2", "replicas: '2'", "Type 'string' is not assignable to type 'number'"},
		"enum.ts":     {"'Premium'", "'Luxury'", `Type '"Luxury"' is not assignable to type`},
		"required.ts": {"model: 'pendulum',", "", "Property 'model' is missing in type"},
	}
	for name, file := range files {
		text := strings.Replace(blocks["ts"], file.old, file.replacement, 1)
		if (text == blocks["ts"]) != (file.old == "") {
			t.Fatalf("the page's object has no %s:\n%s", file.old, text)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// Exclude the types of browsers and of Node.js, which tsc would otherwise spend seconds
	// reading.
	command := []string{"node_modules/.bin/tsc", "--strict", "--noEmit", "--pretty", "false", "--lib", "es2022",
		"--typeRoots", "none"}
	out, err := inDir(t, dir, kubeconfig, append(command, slices.Collect(maps.Keys(files))...)...)
	for name, file := range files {
		got := regexp.MustCompile("(?m)^" + regexp.QuoteMeta(name) + `\(.*`).FindString(out)
		if !strings.Contains(got, file.want) || (got == "") != (file.want == "") {
			t.Errorf("%s: got %q, want %q", name, got, file.want)
		}
	}
	if strings.Count(out, ": error TS") != len(files)-1 {
		t.Errorf("tsc: got %v and\n%s\nwant one error in each file but page.ts", err, out)
	}
}
