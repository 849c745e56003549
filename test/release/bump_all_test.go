// SPDX-License-Identifier: Apache-2.0

//go:build bump

package release

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"example.com/extension-apiserver/internal/scripttest"
	"example.com/extension-apiserver/pkg/envtest"
)

// pinned returns the version of Kubernetes in a file of pins, and that of its libraries.
func pinned(t *testing.T, pins string) (version, staging string) {
	t.Helper()
	data, err := os.ReadFile(pins)
	if err != nil {
		t.Fatal(err)
	}
	match := regexp.MustCompile(`k8s\.io/kubernetes v(1\.(\S+))`).FindStringSubmatch(string(data))
	if match == nil {
		t.Fatalf("%s names no version of k8s.io/kubernetes", pins)
	}
	return match[1], "v0." + match[2]
}

// pins is where versions for the tests are pinned.
var pins = filepath.Join("..", "..", "internal", "controlplane", "pins")

// run runs a command in a copy of the tree.
func run(t *testing.T, tree, command string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), command, args...)
	cmd.Dir = tree
	out, err := cmd.CombinedOutput()
	t.Logf("%s %v: %v\n%s", command, args, err, out)
	return string(out), err
}

// TestBump bumps a copy of the tree to the newest version of Kubernetes that is pinned for the tests, of which the module proxy has all modules. What
// can be moved is, whatever the generators and the compiler say then, and what is left is listed.
func TestBump(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(pins, "1.*.mod"))
	if err != nil || len(files) == 0 {
		t.Fatalf("got the pins %q, %v", files, err)
	}
	version, staging := pinned(t, files[len(files)-1])
	if strings.HasPrefix(version, envtest.DefaultMinor+".") {
		t.Skipf("the kit is at the newest minor that is pinned, %s: there is nothing to bump to until scripts/pin-controlplane.sh pins another", version)
	}
	tree := scripttest.CopyTree(t, filepath.Join("..", ".."))
	scripttest.Commit(t, tree)
	// A new minor may need a person before it compiles; then that is listed.
	out, err := run(t, tree, "scripts/bump.sh", version)
	_, left, _ := strings.Cut(out, "== left for a person")
	if failed := regexp.MustCompile(`(?m)^- (generated code|build|vet) fails: `).MatchString(left); failed != (err != nil) {
		t.Errorf("its error is %v, and a failure is listed: %v", err, failed)
	}
	if strings.Contains(left, "README fails") {
		t.Error("the table of the README is not what is pinned")
	}
	for _, want := range []string{"== left for a person", "CHANGELOG", "KIND_NODE_IMAGE", "pins/konnectivity.mod"} {
		if !strings.Contains(out, want) {
			t.Errorf("it does not say %q", want)
		}
	}
	for file, want := range map[string]string{"go.mod": "k8s.io/apiserver " + staging, "README.md": staging, "internal/controlplane/pins.go": `DefaultMinor = "` + version[:strings.LastIndex(version, ".")] + `"`} {
		data, err := os.ReadFile(filepath.Join(tree, file))
		if err != nil || !strings.Contains(string(data), want) {
			t.Errorf("%s: %v, want %q in it", file, err, want)
		}
	}
}

// TestBumpPatch bumps a copy with the libraries of the patch before to the one that the kit is at: all succeeds, and the tree is what it was.
func TestBumpPatch(t *testing.T) {
	version, _ := pinned(t, filepath.Join(pins, envtest.DefaultMinor+".mod"))
	patch, err := strconv.Atoi(strings.TrimPrefix(version, envtest.DefaultMinor+"."))
	if err != nil {
		t.Fatal(err)
	}
	if patch == 0 {
		t.Skipf("%s is the first patch of its minor", version)
	}
	tree := scripttest.CopyTree(t, filepath.Join("..", ".."))
	scripttest.Commit(t, tree)
	for _, command := range [][]string{
		{"git", "tag", "kit"},
		{"scripts/libraries.sh", fmt.Sprintf("%s.%d", envtest.DefaultMinor, patch-1)},
		{"git", "-c", "user.name=bump", "-c", "user.email=bump@localhost", "commit", "-qam", "older libraries"},
		{"scripts/bump.sh", version},
		// But for comments of pins, and for what go get leaves of indirect requirements.
		{"git", "diff", "--exit-code", "kit", "--", ":!internal/controlplane/pins", ":!go.mod", ":!go.sum"},
	} {
		if _, err := run(t, tree, command[0], command[1:]...); err != nil {
			t.Fatal(err)
		}
	}
}
