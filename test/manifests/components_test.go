// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"example.com/extension-apiserver/internal/scripttest"
)

// componentKeys are the keys in the comment at the head of a kustomization, which are columns of
// docs/reference/components.md. The text before the first key says what the kustomization adds.
var componentKeys = []string{"Needs", "Combine with", "Excludes"}

// kustomization is a folder with a kustomization.yaml.
type kustomization struct {
	name  string            // the path, without components/ at its beginning
	adds  string            // from the comment
	cells map[string]string // from the comment, by componentKeys
	uses  []string          // the base names of its components
}

// excludes returns the names of the kustomizations that exclude this one.
func (k kustomization) excludes() []string {
	return strings.FieldsFunc(k.cells["Excludes"], func(r rune) bool { return strings.ContainsRune("`, ", r) })
}

// kustomizations returns the kustomizations below a folder, sorted by name.
func kustomizations(t *testing.T, folder string) []kustomization {
	t.Helper()
	var all []kustomization
	root := os.DirFS(folder)
	err := fs.WalkDir(root, ".", func(file string, _ fs.DirEntry, err error) error {
		if err != nil || path.Base(file) != "kustomization.yaml" {
			return err
		}
		data, err := fs.ReadFile(root, file)
		if err != nil {
			return err
		}
		k := kustomization{name: strings.TrimPrefix(path.Dir(file), "components/")}
		k.adds, k.cells = headComment(string(data))
		var content struct{ Components []string }
		err = yaml.Unmarshal(data, &content)
		for _, component := range content.Components {
			k.uses = append(k.uses, path.Base(component))
		}
		all = append(all, k)
		return err
	})
	if err != nil || len(all) == 0 {
		t.Fatalf("kustomizations in %s: %d, %v", folder, len(all), err)
	}
	slices.SortFunc(all, func(a, b kustomization) int { return strings.Compare(a.name, b.name) })
	return all
}

// headComment returns the first paragraph of the comment at the head of a file.
func headComment(text string) (adds string, cells map[string]string) {
	cells = map[string]string{}
	current := ""
	for line := range strings.Lines(text) {
		line, comment := strings.CutPrefix(strings.TrimSpace(line), "# ")
		if !comment {
			break
		}
		for _, key := range componentKeys {
			if rest, found := strings.CutPrefix(line, key+": "); found {
				current, line = key, rest
			}
		}
		cells[current] = strings.TrimSpace(cells[current] + " " + line)
	}
	return cells[""], cells
}

// TestComponents checks docs/reference/components.md, and that each kustomization says what it adds
// and is excluded by those that it excludes.
func TestComponents(t *testing.T) {
	t.Parallel()
	var sections []string
	for _, of := range []struct{ heading, folder string }{
		{"Server", folder}, {"Konnectivity", filepath.Join("..", "..", "konnectivity")},
	} {
		all := kustomizations(t, of.folder)
		rows := []string{"| name | adds | needs | combine with | excludes |", "|---|---|---|---|---|"}
		for _, k := range all {
			if k.adds == "" {
				t.Errorf("%s/%s: kustomization.yaml does not begin with a comment", of.folder, k.name)
			}
			for _, other := range k.excludes() {
				if !slices.ContainsFunc(all, func(o kustomization) bool {
					return o.name == other && slices.Contains(o.excludes(), k.name)
				}) {
					t.Errorf("%s/%s excludes %s, which does not exist or does not exclude it", of.folder, k.name, other)
				}
			}
			row := fmt.Sprintf("| `%s` | %s |", k.name, k.adds)
			for _, key := range componentKeys {
				row += " " + k.cells[key] + " |"
			}
			rows = append(rows, row)
		}
		sections = append(sections, "## "+of.heading+"\n\n"+strings.Join(rows, "\n"))
	}
	rows := []string{"| name | contents | components |", "|---|---|---|"}
	for _, k := range kustomizations(t, sampleFolder) {
		if slices.Contains(overlays(t, sampleFolder), k.name) {
			components := slices.DeleteFunc(k.uses, func(name string) bool { return name == "names" })
			rows = append(rows, fmt.Sprintf("| `%s` | %s | `%s` |", k.name, k.adds, strings.Join(components, "`, `")))
		}
	}
	sections = slices.Insert(sections, 0, "## Overlays\n\n"+strings.Join(rows, "\n"))
	scripttest.Generated(t, filepath.Join("..", "..", "docs", "reference", "components.md"),
		"go test ./test/manifests -run TestComponents -update", strings.Join(sections, "\n\n")+"\n", *update)
}
