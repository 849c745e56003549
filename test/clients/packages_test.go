// SPDX-License-Identifier: Apache-2.0

package clients

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// packages is the directory with the node_modules that the scripts import from.
var packages string

// scriptDir returns a directory with the scripts and the npm packages that the JavaScript ones
// import.
func scriptDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := errors.Join(
		os.CopyFS(dir, os.DirFS("testdata")), os.CopyFS(dir, os.DirFS(packageList)),
		os.Symlink(filepath.Join(packages, "node_modules"), filepath.Join(dir, "node_modules")),
	); err != nil {
		t.Fatal(err)
	}
	return dir
}

// packageList is the directory of package.json and package-lock.json.
var packageList = filepath.Join("testdata", "js")
