// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"
)

var update = flag.Bool("update", false, "Write the table of versions in README.md.")

// TestVersions: README.md has the versions of go.mod, and of the control planes that are pinned.
func TestVersions(t *testing.T) {
	readme := filepath.Join("..", "..", "README.md")
	data, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	kit := goMod(t, filepath.Join("..", "..", "go.mod"))
	pins, err := filepath.Glob(filepath.Join("..", "..", "internal", "controlplane", "pins", "[0-9]*.mod"))
	if err != nil || len(pins) < 3 {
		t.Fatalf("pinned control planes: %q (%v), want three", pins, err)
	}
	slices.SortFunc(pins, func(a, b string) int {
		return semver.Compare("v"+strings.TrimSuffix(filepath.Base(a), ".mod"),
			"v"+strings.TrimSuffix(filepath.Base(b), ".mod"))
	})
	var minors, etcds []string
	for _, path := range pins {
		pinned := goMod(t, path)
		minors, etcds = append(minors, version(pinned, "k8s.io/kubernetes")),
			append(etcds, version(pinned, "go.etcd.io/etcd/server/v3"))
	}
	want := fmt.Sprintf("| main | v%s | %s | %s | %s |", version(kit, "k8s.io/apiserver"), strings.Join(minors, ", "),
		strings.Join(etcds, ", "), semver.MajorMinor("v" + kit.Go.Version)[1:])
	row := regexp.MustCompile(`(?m)^\| main \| .*$`)
	if got := string(row.Find(data)); got != want && !*update {
		t.Errorf("README.md:\n%s\nwant\n%s\nrun: go test ./test/docs -run TestVersions -update", got, want)
	}
	if *update {
		if err := os.WriteFile(readme, row.ReplaceAll(data, []byte(want)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func goMod(t *testing.T, path string) *modfile.File {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	file, err := modfile.Parse(path, data, nil)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func version(file *modfile.File, module string) string {
	for _, required := range file.Require {
		if required.Mod.Path == module {
			return strings.TrimPrefix(required.Mod.Version, "v")
		}
	}
	return ""
}
