// SPDX-License-Identifier: Apache-2.0

package scaffold

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// content is that of all files of a directory, by name.
func content(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	names, err := walk(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		out[name] = string(text)
	}
	return out
}

// repository makes the directory of a project one, as new does.
func repository(t *testing.T, p *project) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "git", "-C", p.dir, "init",
		"--quiet").CombinedOutput(); err != nil {
		t.Fatalf("git init: %v\n%s", err, out)
	}
}

// TestChangeFails: a change that fails or is interrupted leaves the project as it was, and nothing
// beside it.
func TestChangeFails(t *testing.T) {
	p := newProject(t)
	repository(t, p)
	want := content(t, p.dir)
	for name, tc := range map[string]struct {
		after func(cancel func()) error
		want  string
	}{
		"the edit fails": {func(func()) error { return errors.New("no way") }, "no way"},
		"interrupted":    {func(cancel func()) error { cancel(); return nil }, "interrupted; nothing was changed"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			err := work{ctx, io.Discard}.change(p, "", func(p *project) error {
				if err := os.WriteFile(p.path("api.go"), []byte("no Go\n"), 0o600); err != nil {
					return err
				}
				return errors.Join(os.Remove(p.path("README.md")), tc.after(cancel))
			})
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
			if diff := cmp.Diff(want, content(t, p.dir)); diff != "" {
				t.Errorf("the project changed (-want +got):\n%s", diff)
			}
			// the pattern is right
			if left, _ := filepath.Glob(filepath.Join(filepath.Dir(p.dir), ".*")); len(left) > 0 {
				t.Errorf("beside the project there is %v, want nothing", left)
			}
		})
	}
}

// TestCopyBack checks that files are created, changed and deleted as in the stage, with the folders
// that are empty then.
func TestCopyBack(t *testing.T) {
	p := newProject(t)
	repository(t, p)
	stage := t.TempDir()
	began, err := p.copyTo(stage)
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(
		os.RemoveAll(filepath.Join(stage, "objects")),
		os.WriteFile(filepath.Join(stage, "README.md"), []byte("# Changed\n"), 0o600),
		os.WriteFile(filepath.Join(stage, "new.go"), []byte("package backup\n"), 0o600),
	)
	if err != nil {
		t.Fatal(err)
	}
	want := content(t, stage)
	got, err := p.compare(stage, began)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(result{created: []string{"new.go"}, changed: []string{"README.md"},
		deleted: []string{"objects/backupplan.yaml"}}, got, cmp.AllowUnexported(result{})); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
	if err := p.copyBack(stage, got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, content(t, p.dir)); diff != "" {
		t.Errorf("the project (-want +got):\n%s", diff)
	}
	if exists(p.path("objects")) {
		t.Error("an empty folder is left")
	}
}

// TestLock: two changes do not meet, and what one left that was killed is removed by the next.
func TestLock(t *testing.T) {
	p := newProject(t)
	left := filepath.Join(filepath.Dir(p.dir), "."+filepath.Base(p.dir)+"-scaffold-1")
	if err := os.Mkdir(left, 0o700); err != nil {
		t.Fatal(err)
	}
	unlock, err := p.lock()
	if err != nil {
		t.Fatal(err)
	}
	if exists(left) {
		t.Error("the copy of a run that was killed is there")
	}
	if _, err := p.lock(); err == nil || !strings.Contains(err.Error(), "another scaffold command is running") {
		t.Errorf("a second run: got %v, want an error: another is running", err)
	}
	unlock()
	if unlock, err = p.lock(); err != nil {
		t.Errorf("after it: %v", err)
	} else {
		unlock()
	}
}
