// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"example.com/extension-apiserver/internal/catalogue"
	"example.com/extension-apiserver/internal/certs"
)

// set is the content of a directory.
type set struct {
	dir       string
	now       time.Time
	clientCAs certs.Bundle // from the options

	objects  []object
	egresses []egressFile
	files    []string            // all files that are not manifests
	unread   []catalogue.Finding // about manifests that could not be decoded

	servers, agents, apiServers []*program
}

// object is a decoded object of a manifest.
type object struct {
	file  string
	value any // a pointer to a type of k8s.io/api
}

// egressFile is an EgressSelectorConfiguration in a file or in a ConfigMap.
type egressFile struct {
	where string // for findings
	name  string // of the file, as in kube-apiserver's flag
	data  []byte
}

// load reads the manifests (*.yaml, *.yml, *.json) and lists the other files in dir and below
// it. It skips names that begin with "..", which contain the same files again, see
// certs.WriteFiles. It returns an error if dir is unreadable or contains no manifest.
func load(dir string, now time.Time) (*set, error) {
	s := &set{dir: dir, now: now}
	if info, err := os.Stat(dir); err != nil {
		return nil, err
	} else if !info.IsDir() {
		return nil, fmt.Errorf("expected a directory with manifests and certificates, found the file %s", dir)
	}
	manifests := 0
	// With a trailing separator, a symlink refers to its target directory.
	root := filepath.Clean(dir) + string(filepath.Separator)
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if path != root && entry.IsDir() && (strings.HasPrefix(entry.Name(), "..") || certs.IsRetired(path)) {
			return fs.SkipDir
		}
		if entry.IsDir() {
			return nil
		}
		if !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path)) {
			s.files = append(s.files, path)
			return nil
		}
		manifests++
		data, err := os.ReadFile(path) //nolint:gosec // G122: who can change the directory can change the set
		if err != nil {
			return err
		}
		s.decode(path, data)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if manifests == 0 {
		return nil, fmt.Errorf(
			"expected manifests in %s, found no file *.yaml; render them into it: kubectl kustomize "+
				"konnectivity/agents/base", dir)
	}
	s.findPrograms()
	return s, nil
}

// file returns the file that a program will find at a path. It compares the last two elements of
// the path: the directory of a key pair, as certgen init names it, and the file in it. It
// returns "" if there is no such file.
func (s *set) file(path string) string {
	want := string(filepath.Separator) + filepath.Join(filepath.Base(filepath.Dir(path)), filepath.Base(path))
	for _, f := range s.files {
		if abs, err := filepath.Abs(f); err == nil && strings.HasSuffix(abs, want) {
			return f
		}
	}
	return ""
}

// bundle returns the certificates in the file at a path. It returns nil if the file is missing
// or malformed, which checkPeers reports.
func (s *set) bundle(path string) certs.Bundle {
	b, _ := s.readBundle(path)
	return b
}

func (s *set) readBundle(path string) (certs.Bundle, error) {
	file := s.file(path)
	if file == "" {
		return nil, fmt.Errorf("expected the file %s in %s, found no file that ends with %s",
			path, s.dir, filepath.Join(filepath.Base(filepath.Dir(path)), filepath.Base(path)))
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	b, err := certs.ParseBundle(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return b, nil
}
