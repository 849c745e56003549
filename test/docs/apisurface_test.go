// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"
)

// TestAPISurface: docs/api-surface.md and SECURITY.md promise nothing that no test shows, and the first leaves out none of the
// tests of the API.
func TestAPISurface(t *testing.T) {
	root := os.DirFS(filepath.Join("..", ".."))
	page, err := fs.ReadFile(root, "docs/api-surface.md")
	if err != nil {
		t.Fatal(err)
	}
	security, err := fs.ReadFile(root, "SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	named, protecting := sets.New[string](), sets.New[string]()
	for _, match := range regexp.MustCompile("`((Test|Fuzz)\\w+)`").FindAllStringSubmatch(string(security), -1) {
		protecting.Insert(match[1])
	}
	for _, match := range regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(string(page), -1) {
		named.Insert(match[1])
	}
	all, ofAPI := sets.New[string](), sets.New[string]()
	function := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\([tf] `)
	err = fs.WalkDir(root, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		data, err := fs.ReadFile(root, path)
		for _, match := range function.FindAllStringSubmatch(string(data), -1) {
			all.Insert(match[1])
			if strings.HasPrefix(path, "test/integration/widget_") {
				ofAPI.Insert(match[1])
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range sets.List(named.Difference(all)) {
		t.Errorf("docs/api-surface.md names %s: got no such test", name)
	}
	for _, name := range sets.List(protecting.Difference(all)) {
		t.Errorf("SECURITY.md names %s: got no such test", name)
	}
	// What kubectl and a user with a role see is told by the rows of the single behaviours.
	for _, name := range sets.List(ofAPI.Difference(named).Delete("TestWidgetKubectl", "TestWidgetKubectlWatch", "TestWidgetAccess")) {
		t.Errorf("docs/api-surface.md does not name %s", name)
	}
}
