// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"example.com/extension-apiserver/internal/scripttest"
)

// TestReadme runs "Try it" of the README: make run in one terminal, the commands in another, Ctrl-C, and the same
// again, which must find the objects.
func TestReadme(t *testing.T) {
	dir := scripttest.CopyTree(t, filepath.Join("..", ".."))
	readme, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := scripttest.Blocks(string(readme))
	if len(blocks) < 3 || strings.TrimSpace(blocks[0]) != "make run" || strings.TrimSpace(blocks[2]) != "make test" {
		t.Fatalf("the README's blocks are %q, want make run, what to try, make test, ...", blocks)
	}

	first := scripttest.MakeRun(t, dir, blocks[0])
	if said := first.String(); !regexp.MustCompile(
		`(?s)First run: .*First run with \d+ CPUs: .*Starting a control plane .*Ready after \d+[.]\d+s`).MatchString(
		said) {
		t.Errorf("make run printed, want first what will happen and how long it takes:\n%s", said)
	}
	out := scripttest.Shell(t, dir, blocks[1])
	for _, want := range []string{
		`widget.workshop.example.com/sample created`, `gadget.workshop.example.com/sample created`,
		`default +widget.workshop.example.com/sample +pendulum +Standard +2 +0`,
		`model	<string> -required-`, `authenticator: RequestHeader`, `username: admin`,
	} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("the commands of the README printed no %q:\n%s", want, out)
		}
	}
	first.Interrupt(t)

	second := scripttest.MakeRun(t, dir, blocks[0])
	if out := scripttest.Shell(t, dir, blocks[1]); !strings.Contains(out,
		"widget.workshop.example.com/sample unchanged") {
		t.Errorf("the second make run did not find the widget of the first:\n%s", out)
	}
	second.Interrupt(t)
	scripttest.Shell(t, dir, "make run-clean")
	if _, err := os.Stat(filepath.Join(dir, ".run")); !os.IsNotExist(err) {
		t.Errorf("after make run-clean: .run: %v, want none", err)
	}
}
