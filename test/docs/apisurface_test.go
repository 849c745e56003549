// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"

	"example.com/extension-apiserver/pkg/conformance"
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
	quoted := regexp.MustCompile("`((?:Test|Fuzz)\\w+)`")
	for _, match := range quoted.FindAllStringSubmatch(string(security), -1) {
		protecting.Insert(match[1])
	}
	for _, match := range quoted.FindAllStringSubmatch(string(page), -1) {
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
			if strings.HasPrefix(path, "test/integration/") && strings.HasPrefix(match[1], "TestEngine") {
				ofAPI.Insert(match[1])
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	// Who deletes the sample deletes its tests.
	if _, err := fs.Stat(root, "sample"); errors.Is(err, fs.ErrNotExist) {
		for line := range strings.Lines(string(page) + string(security)) {
			if strings.Contains(line, "(sample") {
				for _, match := range quoted.FindAllStringSubmatch(line, -1) {
					all.Insert(match[1])
				}
			}
		}
	}
	for _, name := range sets.List(named.Difference(all)) {
		t.Errorf("docs/api-surface.md names %s: got no such test", name)
	}
	for _, name := range sets.List(protecting.Difference(all)) {
		t.Errorf("SECURITY.md names %s: got no such test", name)
	}
	checks := sets.New[string]()
	for _, check := range conformance.Checks() {
		checks.Insert(check.ID, check.Area()+"/*")
	}
	for _, match := range regexp.MustCompile("`([a-z-]+/(?:[a-z-]+|\\*))`").FindAllStringSubmatch(string(page)+string(security), -1) {
		area, _, _ := strings.Cut(match[1], "/")
		if !checks.Has(match[1]) && checks.Has(area+"/*") {
			t.Errorf("docs/api-surface.md or SECURITY.md names %s: got no such check of pkg/conformance", match[1])
		}
	}
	for _, name := range sets.List(ofAPI.Difference(named)) {
		t.Errorf("docs/api-surface.md does not name %s", name)
	}
}
