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

// Files is a set of files by name, such as a pair's.
type Files = map[string]File

// Store keeps sets of files, each under a name such as "serving" or "rotation/new/serving". Callers hold its lock while
// they write.
type Store interface {
	// Lock waits until ctx ends while somebody else has it.
	Lock(ctx context.Context) (unlock func() error, err error)
	// Read returns the named files, or those of a pair, as far as they are there. What cannot be read is *RefusedError.
	Read(set string, names ...string) (Files, error)
	// Write replaces the whole set in one step.
	Write(set string, files Files) error
	// Move renames a set, if it is there.
	Move(from, to string) error
	// Remove removes all sets whose names begin with that one.
	Remove(set string) error
	// Path is what a set, or a file of it, is called in errors and reports.
	Path(elem ...string) string
}

// Dir is a Store in a directory. An absolute name is a directory of its own.
type Dir string

// Path joins them.
func (d Dir) Path(elem ...string) string {
	if len(elem) > 0 && filepath.IsAbs(elem[0]) {
		return filepath.Join(elem...)
	}
	return filepath.Join(append([]string{string(d)}, elem...)...)
}

const lockFile = ".certgen.lock"

// Lock makes the directory if need be and takes its lock, which the kernel gives back when the process ends, however it
// ends. It waits while another process holds it, until ctx ends. The file stays: to remove it would let a third process
// lock a new file of the same name.
func (d Dir) Lock(ctx context.Context) (func() error, error) {
	if err := makeDir(string(d)); err != nil {
		return nil, err
	}
	path := d.Path(lockFile)
	lock := flock.New(path, flock.SetPermissions(keyMode))
	// Locks of files have no wait with a limit, so it asks again; 50 ms is far shorter than what a person notices.
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

// Read reads the files.
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

// Write is that of WriteFiles.
func (d Dir) Write(set string, files Files) error { return WriteFiles(d.Path(set), files) }

// Move renames the directory.
func (d Dir) Move(from, to string) error {
	switch err := os.Rename(d.Path(from), d.Path(to)); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("move %s: %w", from, err)
	}
	return errors.Join(syncDir(filepath.Dir(d.Path(from))), syncDir(filepath.Dir(d.Path(to))))
}

// Remove removes the directory with all below it.
func (d Dir) Remove(set string) error {
	if err := os.RemoveAll(d.Path(set)); err != nil {
		return fmt.Errorf("remove %s: %w", set, err)
	}
	return syncDir(filepath.Dir(d.Path(set)))
}

// Memory is a Store that ends with the process: keys in it touch no disk. Its paths are what Name says, or the names of
// the sets.
type Memory struct {
	Sets map[string]Files
	Name func(elem ...string) string
}

// Path names a set, or a file of it.
func (m *Memory) Path(elem ...string) string {
	if m.Name != nil {
		return m.Name(elem...)
	}
	return path.Join(elem...)
}

// Lock has nobody to wait for.
func (m *Memory) Lock(context.Context) (func() error, error) { return func() error { return nil }, nil }

// Read returns a copy of the set, whatever the names.
func (m *Memory) Read(set string, _ ...string) (Files, error) { return maps.Clone(m.Sets[set]), nil }

// Write keeps a copy of the files.
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

// Remove forgets the sets.
func (m *Memory) Remove(set string) error {
	maps.DeleteFunc(m.Sets, func(name string, _ Files) bool { return name == set || strings.HasPrefix(name, set+"/") })
	return nil
}

// Files are those of the pair: tls.crt, tls.key unless the key is elsewhere, and, unless it is empty, the bundle as
// ca.crt.
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

// ReadPair reads tls.crt and tls.key of a set as ParseKeyPair does. A missing file is fs.ErrNotExist.
func ReadPair(s Store, set string) (*KeyPair, error) { return readPair(s, set, CertFile, KeyFile) }

// ReadKeyPair reads a pair as ReadPair does: tls.crt and tls.key of a directory or, of kubeadm's files, NAME.crt and
// the NAME.key beside it.
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

// ReadCertificate reads the one certificate in tls.crt of a set. What is wrong with it is *RefusedError.
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

// pairDir is a pair's set of files, what was found in it and what is done about it. A file that is missing leaves its
// fields empty; one that cannot be parsed leaves its error. Once another is issued, cert is that.
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

// load reads what is there. A file that exists and cannot be read is an error: nobody knows what would be lost with it.
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
		// Its mode is left alone: a group may have been let in on purpose.
		if mode := keyFile.Mode.Perm(); mode&0o077 != 0 && runtime.GOOS != "windows" {
			d.notes = append(d.notes,
				fmt.Sprintf("other users can read %s (mode %04o); to prevent this: chmod 600 %[1]s",
					d.file(KeyFile), mode))
		}
	}
	// A bundle that cannot be parsed is the same as none: it is made again from the CA.
	d.bundle, _ = ParseBundle(files[BundleFile].Data)
	return nil
}
