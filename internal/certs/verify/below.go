// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// extensions of the files that are looked at in a directory.
var extensions = []string{".crt", ".cert", ".cer", ".pem", ".key"}

// filesBelow returns path itself if it is a file, and otherwise the files named like certificates and keys in it and
// all below it, by name. It passes over names that begin with "..", which hold the same again (see certs.WriteFiles). A path
// that does not exist, and a directory with no such file, is an error.
func filesBelow(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{filepath.Clean(path)}, nil
	}
	var out []string
	// With a separator at its end, a symlink is the directory to which it leads. WalkDir follows none otherwise.
	root := filepath.Clean(path) + string(filepath.Separator)
	err = filepath.WalkDir(root, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if strings.HasPrefix(e.Name(), "..") && p != root {
			if e.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if !e.IsDir() && slices.Contains(extensions, filepath.Ext(p)) {
			out = append(out, p)
		}
		return nil
	})
	if err == nil && len(out) == 0 {
		err = fmt.Errorf("expected certificates in %s, found no file named %s", path, "*"+strings.Join(extensions, ", *"))
	}
	return out, err
}
