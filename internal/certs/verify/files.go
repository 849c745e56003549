// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"example.com/extension-apiserver/internal/catalogue"
	"example.com/extension-apiserver/internal/certs"
)

// extensions lists the file extensions that are checked in a directory.
var extensions = []string{".crt", ".cert", ".cer", ".pem", ".key"}

// filesBelow returns path itself if it is a file. For a directory, it returns the files below it
// whose names have an extension of a certificate or key file, in order of their names. It skips
// names that begin with "..", which contain the same files again (see certs.WriteFiles). A path
// that does not exist and a directory without such files are errors.
func filesBelow(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{filepath.Clean(path)}, nil
	}
	var out []string
	// With a trailing separator, a symlink refers to its target directory. Otherwise WalkDir
	// does not follow it.
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
		err = fmt.Errorf("expected certificates in %s, found no file named %s", path,
			"*"+strings.Join(extensions, ", *"))
	}
	return out, err
}

// pemFile is a file with certificates, a key, or both.
type pemFile struct {
	path  string
	mode  fs.FileMode // of a link's target
	plain bool        // not a link
	err   error       // set if the file cannot be read

	certs.Content
}

// readFile reads a PEM file. It returns nil for a file that does not exist; other errors are in
// the result.
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

// problems returns the findings of F04.
func (f *pemFile) problems() []catalogue.Finding {
	var out []catalogue.Finding
	for _, p := range f.Problems {
		severity := catalogue.Error
		if p.Warning {
			severity = catalogue.Warning
		}
		out = append(out, catalogue.Finding{Severity: severity, Object: f.path, Evidence: p.Text})
	}
	if f.CRLF {
		out = append(out, catalogue.Finding{Severity: catalogue.Warning, Object: f.path, Evidence: "CRLF line endings"})
	}
	return out
}

func checkKeyMode(t *target) []catalogue.Finding {
	// Windows uses access control lists instead of modes.
	if t.key == nil || t.key.err != nil || runtime.GOOS == "windows" {
		return nil
	}
	mode := t.key.mode.Perm()
	f := catalogue.Finding{Object: t.key.path, Evidence: fmt.Sprintf("mode %04o, expected 0600", mode),
		Fix: "chmod 600 " + t.key.path}
	switch {
	case mode&0o077 == 0:
		return nil
	case mode&0o027 == 0: // no access for others, and not writable by the group
		// A Secret volume with fsGroup has this mode, for a server that does not run as root.
		f.Severity = catalogue.Warning
		f.Fix += ", unless the server's user is the only member of the group"
	}
	return []catalogue.Finding{f}
}

func checkReadable(t *target) []catalogue.Finding {
	var out []catalogue.Finding
	for _, f := range t.files() {
		if f.err != nil {
			out = append(out, catalogue.Finding{Object: f.path, Evidence: f.err.Error()})
		}
	}
	missing := func(name, beside string) {
		out = append(out, catalogue.Finding{Object: filepath.Join(filepath.Dir(t.path), name),
			Evidence: "missing beside " + beside})
	}
	switch filepath.Base(t.path) {
	case certs.CertFile:
		// The key of a CA may be stored elsewhere; a leaf is useless without its key.
		if t.key == nil && t.purpose.leaf() {
			missing(certs.KeyFile, certs.CertFile)
		}
	case certs.KeyFile:
		missing(certs.CertFile, certs.KeyFile)
	}
	return out
}

func checkAtomicLayout(t *target) []catalogue.Finding {
	// On Windows, certgen init also writes plain files.
	if runtime.GOOS != "windows" && t.cert != nil && t.key != nil && t.cert != t.key && t.purpose.leaf() &&
		t.cert.plain && t.key.plain {
		return found("%s and %s are plain files", t.cert.path, t.key.path)
	}
	return nil
}

func checkPEM(t *target) []catalogue.Finding {
	var out []catalogue.Finding
	for _, f := range t.files() {
		problems := f.problems()
		out = append(out, problems...)
		if f.err != nil || catalogue.Count(problems).Errors > 0 {
			continue
		}
		if f != t.key && len(f.Certificates) == 0 {
			out = append(out, catalogue.Finding{Object: f.path, Evidence: "contains no certificate"})
		}
		if f == t.key && f.Key == nil {
			out = append(out, catalogue.Finding{Object: f.path, Evidence: "contains no private key"})
		}
	}
	// A key in a file that is distributed, or next to another key, is a mistake.
	for _, f := range []*pemFile{t.cert, t.bundle} {
		if f != nil && f.KeyBlocks > 0 && f != t.key {
			out = append(out, catalogue.Finding{Object: f.path, Evidence: "a file for certificates contains a private key",
				Fix: "remove the key from the file, and replace the key if the file was distributed"})
		}
	}
	if f := t.key; f != nil && f != t.cert && len(f.Certificates) > 0 {
		out = append(out, catalogue.Finding{Severity: catalogue.Warning, Object: f.path,
			Evidence: "a file for a private key contains a certificate"})
	}
	return out
}
