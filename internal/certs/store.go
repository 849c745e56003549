// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"cmp"
	"context"
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/gofrs/flock"
)

// File is one file of a set.
type File struct {
	Data []byte
	Mode fs.FileMode
}

// Files maps names to the files of a set, such as a key pair.
type Files = map[string]File

// Store stores sets of files, each under a name such as "serving" or "rotation/new/serving".
// Callers hold the store's lock while they write.
type Store interface {
	// Lock acquires the lock. It waits until ctx is done if another process holds it.
	Lock(ctx context.Context) (unlock func() error, err error)
	// Read returns the named files that exist; without names, those of a key pair. It returns
	// *RefusedError for a file that cannot be read.
	Read(set string, names ...string) (Files, error)
	// Write replaces the whole set in one step.
	Write(set string, files Files) error
	// Move renames a set if it exists.
	Move(from, to string) error
	// Remove removes the set and all sets below it.
	Remove(set string) error
	// Path returns the path of a set, or of a file in it, for errors and reports.
	Path(elem ...string) string
}

// Dir is a Store in a directory. An absolute set name refers to a directory outside of it.
type Dir string

// Path joins d and elem. It omits d if the first element is an absolute path.
func (d Dir) Path(elem ...string) string {
	if len(elem) > 0 && filepath.IsAbs(elem[0]) {
		return filepath.Join(elem...)
	}
	return filepath.Join(append([]string{string(d)}, elem...)...)
}

const lockFile = ".certgen.lock"

// Lock creates the directory if it is missing and locks it. It waits until ctx is done if
// another process holds the lock. The kernel releases the lock when the process exits for any
// reason. The lock file is not removed: otherwise a third process could lock a new file of the
// same name.
func (d Dir) Lock(ctx context.Context) (func() error, error) {
	if err := makeDir(string(d)); err != nil {
		return nil, err
	}
	path := d.Path(lockFile)
	lock := flock.New(path, flock.SetPermissions(keyMode))
	// File locks have no wait with a timeout, so Lock polls; people do not notice a delay of 50
	// ms.
	_, err := lock.TryLockContext(ctx, 50*time.Millisecond)
	if err == nil {
		return lock.Close, nil
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, &RefusedError{Path: path,
			Reason: "expected exclusive access, found another certgen at work in this directory; run the command again " +
				"when that has exited"}
	}
	return nil, fmt.Errorf("lock %s: %w", path, err)
}

// Read returns the named files that exist; without names, those of a key pair.
func (d Dir) Read(set string, names ...string) (Files, error) {
	if len(names) == 0 {
		names = []string{CertFile, KeyFile, BundleFile}
	}
	var files Files
	for _, name := range names {
		file := d.Path(set, name)
		data, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		info, statErr := os.Stat(file)
		if err := cmp.Or(err, statErr); err != nil {
			return nil, &RefusedError{Path: file, Reason: fmt.Sprintf(
				"expected a readable file: %v; let certgen's user read it, or move it away", errors.Unwrap(err))}
		}
		if files == nil {
			files = Files{}
		}
		files[name] = File{data, info.Mode().Perm()}
	}
	return files, nil
}

// Write replaces the set's files as WriteFiles does.
func (d Dir) Write(set string, files Files) error { return WriteFiles(d.Path(set), files) }

// Move renames the set's directory. It does nothing if the directory does not exist.
func (d Dir) Move(from, to string) error {
	switch err := os.Rename(d.Path(from), d.Path(to)); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("move %s: %w", from, err)
	}
	return errors.Join(syncDir(filepath.Dir(d.Path(from))), syncDir(filepath.Dir(d.Path(to))))
}

// Remove removes the set's directory and everything below it.
func (d Dir) Remove(set string) error {
	if err := os.RemoveAll(d.Path(set)); err != nil {
		return fmt.Errorf("remove %s: %w", set, err)
	}
	return syncDir(filepath.Dir(d.Path(set)))
}

// Memory is a Store in the memory of the process, so keys in it never reach a disk. Its paths
// come from Name if set, otherwise they are the names of the sets.
type Memory struct {
	Sets map[string]Files
	Name func(elem ...string) string
}

// Path returns the path of a set, or of a file in it.
func (m *Memory) Path(elem ...string) string {
	if m.Name != nil {
		return m.Name(elem...)
	}
	return path.Join(elem...)
}

// Lock returns immediately without locking.
func (m *Memory) Lock(context.Context) (func() error, error) { return func() error { return nil }, nil }

// Read returns a copy of the whole set and ignores names.
func (m *Memory) Read(set string, _ ...string) (Files, error) { return maps.Clone(m.Sets[set]), nil }

// Write stores a copy of the files.
func (m *Memory) Write(set string, files Files) error {
	if m.Sets == nil {
		m.Sets = map[string]Files{}
	}
	m.Sets[set] = maps.Clone(files)
	return nil
}

// Move renames a set.
func (m *Memory) Move(from, to string) error {
	if files, ok := m.Sets[from]; ok {
		delete(m.Sets, from)
		m.Sets[to] = files
	}
	return nil
}

// Remove removes the set and all sets below it.
func (m *Memory) Remove(set string) error {
	maps.DeleteFunc(m.Sets, func(name string, _ Files) bool { return name == set || strings.HasPrefix(name, set+"/") })
	return nil
}

// Files returns the files of the key pair: tls.crt, tls.key unless the key is elsewhere, and
// ca.crt if bundle is not empty.
func (p *KeyPair) Files(bundle Bundle) Files {
	files := Files{CertFile: {p.CertPEM, certMode}}
	if len(p.KeyPEM) > 0 {
		files[KeyFile] = File{p.KeyPEM, keyMode}
	}
	if len(bundle) > 0 {
		files[BundleFile] = File{bundle.PEM(), certMode}
	}
	return files
}

// ReadPair reads tls.crt and tls.key of a set as ParseKeyPair does. A missing file gives
// fs.ErrNotExist.
func ReadPair(s Store, set string) (*KeyPair, error) { return readPair(s, set, CertFile, KeyFile) }

// ReadKeyPair reads a key pair as ReadPair does. path is a directory with tls.crt and tls.key
// or, for kubeadm's files, NAME.crt with NAME.key beside it.
func ReadKeyPair(path string) (*KeyPair, error) {
	dir, file := filepath.Split(path)
	name, isFile := strings.CutSuffix(file, ".crt")
	if info, err := os.Stat(path); err != nil || info.IsDir() || !isFile {
		return ReadPair(Dir(path), "")
	}
	return readPair(Dir(dir), "", file, name+".key")
}

func readPair(s Store, set, certFile, keyFile string) (*KeyPair, error) {
	files, err := s.Read(set, certFile, keyFile)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{certFile, keyFile} {
		if _, ok := files[name]; !ok {
			return nil, fmt.Errorf("read key pair: %w", &fs.PathError{Op: "open", Path: s.Path(set, name),
				Err: fs.ErrNotExist})
		}
	}
	pair, err := ParseKeyPair(files[certFile].Data, files[keyFile].Data)
	if err != nil {
		return nil, fmt.Errorf("read key pair %s: %w", s.Path(set, certFile), err)
	}
	return pair, nil
}

// ReadCertificate reads the single certificate in tls.crt of a set. It returns *RefusedError if
// the certificate is missing or invalid.
func ReadCertificate(s Store, set string) (*x509.Certificate, error) {
	d := pairDir{store: s, name: set}
	switch err := d.load(); {
	case err != nil:
		return nil, err
	case !d.certSeen:
		return nil, &RefusedError{Path: d.file(CertFile),
			Reason: "expected a certificate, found none; issue it with certgen init"}
	case d.certErr != nil:
		return nil, &RefusedError{Path: d.file(CertFile), Reason: d.certErr.Error()}
	}
	return d.cert, nil
}

// pairDir is the set of files of a key pair, with its parsed content and the decision about it.
// The fields of a missing file are empty; a malformed file sets the error field. After a new
// certificate is issued, cert holds that one.
type pairDir struct {
	store Store
	name  string

	certSeen, keySeen bool
	cert              *x509.Certificate
	key               crypto.Signer
	bundle            Bundle
	certErr, keyErr   error
	notes             []string

	decision Item // what to do, and why
}

func (d *pairDir) path() string            { return d.store.Path(d.name) }
func (d *pairDir) file(name string) string { return d.store.Path(d.name, name) }

// load reads the existing files. A file that exists but cannot be read is an error, because its
// content may be needed.
func (d *pairDir) load() error {
	files, err := d.store.Read(d.name)
	if err != nil {
		return err
	}
	certFile, keyFile := files[CertFile], files[KeyFile]
	if _, d.certSeen = files[CertFile]; d.certSeen {
		d.cert, d.certErr = parseCertificate(certFile.Data)
	}
	if _, d.keySeen = files[KeyFile]; d.keySeen {
		d.key, d.keyErr = ParsePrivateKey(keyFile.Data)
		// Keep the mode: access for a group may be intended.
		if mode := keyFile.Mode.Perm(); mode&0o077 != 0 && runtime.GOOS != "windows" {
			d.notes = append(d.notes,
				fmt.Sprintf("other users can read %s (mode %04o); to prevent this: chmod 600 %[1]s",
					d.file(KeyFile), mode))
		}
	}
	// A malformed bundle is treated as missing: it is created again from the CA.
	d.bundle, _ = ParseBundle(files[BundleFile].Data)
	return nil
}
