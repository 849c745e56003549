// SPDX-License-Identifier: Apache-2.0

//go:build bump

package release

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"example.com/extension-apiserver/internal/scripttest"
	"example.com/extension-apiserver/pkg/envtest"
)

// TestBump bumps a copy of the tree to the newest version of Kubernetes that is pinned for the tests, of which the module proxy has all modules. What
// can be moved is, whatever the generators and the compiler say then, and what is left is listed.
func TestBump(t *testing.T) {
	root := filepath.Join("..", "..")
	pins, err := filepath.Glob(filepath.Join(root, "pkg", "envtest", "pins", "1.*.mod"))
	if err != nil || len(pins) == 0 {
		t.Fatalf("got the pins %q, %v", pins, err)
	}
	data, err := os.ReadFile(pins[len(pins)-1])
	if err != nil {
		t.Fatal(err)
	}
	match := regexp.MustCompile(`k8s\.io/kubernetes v(1\.(\S+))`).FindStringSubmatch(string(data))
	if match == nil {
		t.Fatalf("%s names no version of k8s.io/kubernetes", pins[len(pins)-1])
	}
	version, staging := match[1], "v0."+match[2]
	if strings.HasPrefix(version, envtest.DefaultMinor+".") {
		t.Skipf("the kit is at the newest minor that is pinned, %s: there is nothing to bump to until scripts/pin-controlplane.sh pins another", version)
	}
	tree := scripttest.CopyTree(t, root)
	scripttest.Commit(t, tree)
	out, err := exec.CommandContext(t.Context(), filepath.Join(tree, "scripts", "bump.sh"), version).CombinedOutput()
	t.Logf("%v\n%s", err, out) // a new minor may need a person before it compiles
	for _, want := range []string{"== left for a person", "CHANGELOG", "KIND_NODE_IMAGE", "pins/konnectivity.mod"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("it does not say %q", want)
		}
	}
	for file, want := range map[string]string{"go.mod": "k8s.io/apiserver " + staging, "README.md": staging, "pkg/envtest/pins.go": `DefaultMinor = "` + version[:strings.LastIndex(version, ".")] + `"`} {
		data, err := os.ReadFile(filepath.Join(tree, file))
		if err != nil || !strings.Contains(string(data), want) {
			t.Errorf("%s: %v, want %q in it", file, err, want)
		}
	}
}
