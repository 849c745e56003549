// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"example.com/extension-apiserver/internal/scripttest"
)

// reader follows pages of the documentation as a new user does.
type reader struct {
	docs        string // directory with the pages
	dir         string // where the next command runs
	environment string // commands "export" of the pages
	running     *scripttest.Running
}

// shortDir is a directory like t.TempDir, whose path is short enough for a Unix socket.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "day-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// newReader returns a reader in a checkout of the kit.
func newReader(t *testing.T) *reader {
	t.Helper()
	checkout := filepath.Join(shortDir(t), "kit")
	scripttest.Shell(t, filepath.Join("..", ".."), "scripts/copy-tree.sh "+checkout)
	scripttest.Commit(t, checkout)
	return &reader{docs: filepath.Join(checkout, "docs"), dir: checkout}
}

// follow runs the commands of a page, or of the given sections of it, and compares their output
// with the page. It commits the changes of each block, and ends the processes that the page
// started.
func (r *reader) follow(t *testing.T, page string, sections ...string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(r.docs, page))
	if err != nil {
		t.Fatal(err)
	}
	part := string(text)
	if len(sections) > 0 {
		part = ""
		for _, section := range sections {
			part += scripttest.Section(t, filepath.Join(r.docs, page), section)
		}
	}
	steps := scripttest.Steps(part)
	if len(steps) == 0 {
		t.Fatalf("%s %q has no commands", page, sections)
	}
	for _, step := range steps {
		began := time.Now()
		out := r.run(t, step)
		for _, problem := range step.Compare(out) {
			t.Errorf("%s: %s\nThe commands\n%s\nprinted\n%s", page, problem, step.Commands, out)
		}
		first, _, _ := strings.Cut(step.Commands, "\n")
		t.Logf("%s: %.0f s: %s", page, time.Since(began).Seconds(), first)
		scripttest.Commit(t, r.dir)
	}
	r.stop(t)
}

var (
	exports = regexp.MustCompile(`(?m)^export .*\n`)
	cd      = regexp.MustCompile(`(?m)^cd (\S+)$`)
	// failure is how kubectl and make report one. A block of which the page shows it must fail.
	failure = regexp.MustCompile(`(?m)^(Error|The .* is invalid:)`)
)

// run runs the commands of a step. If the last line is "make run", it stops the previous make run,
// and starts this one in the background.
func (r *reader) run(t *testing.T, step scripttest.Step) (out string) {
	t.Helper()
	commands, serve := strings.CutSuffix(step.Commands, "make run\n")
	if r.environment += strings.Join(exports.FindAllString(commands, -1), ""); serve {
		r.stop(t)
	}
	if commands != "" {
		if failure.MatchString(step.Output) {
			commands = fmt.Sprintf("if (set -e\n%s); then echo 'the commands succeeded'; exit 1; fi", commands)
		}
		out = scripttest.Shell(t, r.dir, r.environment+commands)
	}
	if to := cd.FindStringSubmatch(commands); to != nil {
		r.dir = filepath.Join(r.dir, to[1])
	}
	if serve {
		r.running = scripttest.MakeRun(t, r.dir, "make run")
		out += r.running.String()
	}
	return out
}

// stop ends make run with Ctrl-C.
func (r *reader) stop(t *testing.T) {
	t.Helper()
	if r.running != nil {
		r.running.Interrupt(t)
		r.running = nil
	}
}
