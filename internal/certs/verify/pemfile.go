// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"cmp"
	"errors"
	"io/fs"
	"os"

	"example.com/extension-apiserver/internal/certs"
)

// pemFile is a file with certificates, a key, or both.
type pemFile struct {
	path  string
	mode  fs.FileMode // what a link points to
	plain bool        // not a link
	err   error       // it cannot be read

	certs.Content
}

// readFile returns nil for a file that does not exist.
func readFile(path string) *pemFile {
	link, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	info, statErr := os.Stat(path)
	data, readErr := os.ReadFile(path)
	f := &pemFile{path: path, plain: err == nil && link.Mode()&fs.ModeSymlink == 0, err: cmp.Or(err, statErr, readErr)}
	if f.err == nil {
		f.mode, f.Content = info.Mode(), *certs.ReadPEM(data)
	}
	return f
}

// problems are those of F04.
func (f *pemFile) problems() []Finding {
	var out []Finding
	for _, p := range f.Problems {
		severity := Error
		if p.Warning {
			severity = Warning
		}
		out = append(out, Finding{Severity: severity, Object: f.path, Evidence: p.Text})
	}
	if f.CRLF {
		out = append(out, Finding{Severity: Warning, Object: f.path, Evidence: "line ends are CRLF"})
	}
	return out
}
