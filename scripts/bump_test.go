// SPDX-License-Identifier: Apache-2.0

package scripts

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"example.com/extension-apiserver/internal/scripttest"
)

// TestBumpPreconditions checks that make bump reports unmet preconditions before it changes
// anything.
func TestBumpPreconditions(t *testing.T) {
	changed := scripttest.CopyTree(t, "..")
	scripttest.Commit(t, changed)
	refused := func(name, version, want string, environment ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), filepath.Join(changed, "scripts", "bump.sh"), version)
		cmd.Env = append(cmd.Environ(), environment...)
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: got %v and\n%s\nwant %q", name, err, out, want)
		}
	}
	refused("no such version", "1.99.0", "bump: Kubernetes 1.99.0 cannot be downloaded, or does not exist")
	refused("no module proxy", "1.99.0", "GOPROXY=off", "GOPROXY=off")
	scripttest.Write(t, filepath.Join(changed, "new"), "")
	for name, tc := range map[string]struct{ version, want string }{
		"no version":      {"", `the version is "": must have the form 1.37.2`},
		"a minor version": {"1.37", `the version is "1.37": must have the form`},
		"with v":          {"v1.37.2", `the version is "v1.37.2": must have the form`},
		"a changed tree":  {"1.37.2", "the tree has changes; commit or stash them"},
		"not of our form": {"1.37.2; true", "must have the form"},
	} {
		refused(name, tc.version, tc.want)
	}
	if out := scripttest.Shell(t, changed, "git status --porcelain"); strings.TrimSpace(out) != "?? new" {
		t.Errorf("got the changes\n%s\nwant none besides the one that was there", out)
	}
}
