// SPDX-License-Identifier: Apache-2.0

// Package controlplane tests how the control plane is built. The folders beside pin its versions; each is a module
// without code.
package controlplane

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// TestBuildTwiceAtOnce: of two builds at the same moment one builds and the other waits; a third finds nothing to do; and
// the binaries know their version. With a warm cache it takes as long as linking, 20 s.
func TestBuildTwiceAtOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tree")
	run(t, filepath.Join("..", ".."), "scripts/copy-tree.sh", dir)
	// The copy links to what is built already.
	if err := os.Remove(filepath.Join(dir, "bin", "1.36")); err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	outputs := make([]string, 2)
	for i := range outputs {
		group.Go(func() { outputs[i] = run(t, dir, "scripts/controlplane.sh") })
	}
	group.Wait()
	both := strings.Join(outputs, "----\n")
	if n := strings.Count(both, "[5/6] kubectl: done"); n != 1 {
		t.Errorf("%d of two builds at once built, want 1:\n%s", n, both)
	}
	if !strings.Contains(both, "another build is running; waiting for it") {
		t.Errorf("none of two builds at once said that it waits:\n%s", both)
	}
	if out := run(t, dir, "scripts/controlplane.sh"); out != "" {
		t.Errorf("a build of what is current printed, want nothing:\n%s", out)
	}
	var version struct {
		ClientVersion struct{ GitVersion, Minor string }
	}
	out := run(t, dir, "bin/1.36/kubectl", "version", "--client", "-o", "json")
	if err := json.Unmarshal([]byte(out), &version); err != nil || version.ClientVersion.GitVersion != "v1.36.3" || version.ClientVersion.Minor != "36" {
		t.Errorf("kubectl version: %+v (%v), want v1.36.3", version, err)
	}
}

func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "./"+name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v\n%s", name, err, out)
	}
	return string(out)
}
