// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// The files of a key pair, named as in a Secret of type kubernetes.io/tls.
const (
	CertFile   = "tls.crt"
	KeyFile    = "tls.key"
	BundleFile = "ca.crt" // of a leaf: the CAs that its peers should trust
)

// File permissions. Only the owner can read a key; a process that runs as another user needs its
// own copy.
const (
	keyMode  fs.FileMode = 0o600
	certMode fs.FileMode = 0o644
	dirMode  fs.FileMode = 0o755
	// caDirMode denies access to all other users in a directory that holds a CA's key.
	caDirMode fs.FileMode = 0o700
)

const (
	dataLink      = "..data" // kubelet uses this name for the same purpose
	versionPrefix = "..v-"
	linkPrefix    = "..link-"
)

// Write stores the key pair as tls.crt and tls.key in dir, and a non-empty bundle as ca.crt. See
// WriteFiles.
func (p *KeyPair) Write(dir string, bundle Bundle) error { return WriteFiles(dir, p.Files(bundle)) }

// WriteFiles replaces the set of files in dir in one step and creates dir if it is missing.
// Callers must not write to the same directory concurrently (see Dir.Lock).
//
// Two renames, one for the certificate and one for its key, would leave a mismatched key pair if
// the machine stopped between them. WriteFiles therefore writes the files to a new directory.
// One rename of the symlink ..data makes all of them current, as in a Secret that kubelet
// mounts:
//
//	tls.crt -> ..data/tls.crt    tls.key -> ..data/tls.key
//	..data  -> ..v-123           ..v-123/{tls.crt,tls.key}
//
// The paths dir/tls.crt and dir/tls.key never change. They also work in a mount of dir, because
// every link is relative. Before the rename, plain files become links to a version with the same
// content. Missing links are created before the rename too, so that a version is complete when
// it becomes current. Last, WriteFiles removes the previous version's directory. This also makes
// servers reload: their watch follows the symlinks and detects the removal of the old file, but
// not the rename of ..data.
//
// On Windows, WriteFiles uses plain files and replaces them one by one. There, not every user
// may create symlinks, and a symlink cannot be replaced in one step.
func WriteFiles(dir string, files Files) error {
	if err := makeDir(dir); err != nil {
		return err
	}
	if holdsCAKey(files) {
		if err := os.Chmod(dir, caDirMode); err != nil {
			return fmt.Errorf("set mode: %w", err)
		}
	}
	if runtime.GOOS == "windows" {
		return replaceFiles(dir, files)
	}
	version, err := writeVersion(dir, files)
	if err != nil {
		return err
	}
	names := slices.Sorted(maps.Keys(files))
	err = linkPlainFiles(dir, names)
	if err == nil {
		err = linkFiles(dir, names)
	}
	if err := switchTo(dir, version, err); err != nil {
		return err
	}
	return errors.Join(removeKey(dir, files), removeOld(dir, version))
}

// removeKey removes a key that belongs to another certificate, if files has a certificate
// without a key.
func removeKey(dir string, files Files) error {
	if _, ok := files[KeyFile]; ok || files[CertFile].Data == nil {
		return nil
	}
	return removeIfExists(filepath.Join(dir, KeyFile))
}

// replaceFiles replaces files one by one. A concurrent reader may see a key pair that does not
// match.
func replaceFiles(dir string, files Files) error {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		write := func(tmp string) error { return writeFile(tmp, files[name]) }
		if err := atomically(filepath.Join(dir, linkPrefix+name), filepath.Join(dir, name), write,
			os.Rename); err != nil {
			return err
		}
	}
	if err := removeKey(dir, files); err != nil {
		return err
	}
	if _, ok := files[BundleFile]; !ok {
		return removeIfExists(filepath.Join(dir, BundleFile))
	}
	return nil
}

func holdsCAKey(files Files) bool {
	cert, err := parseCertificate(files[CertFile].Data)
	return err == nil && cert.IsCA && len(files[KeyFile].Data) > 0
}

// writeVersion writes files to a new directory that no link refers to yet and returns its name.
func writeVersion(dir string, files Files) (string, error) {
	path, err := os.MkdirTemp(dir, versionPrefix)
	if err != nil {
		return "", fmt.Errorf("create directory: %w", err)
	}
	for name, f := range files {
		err = errors.Join(err, writeFile(filepath.Join(path, name), f))
	}
	if err := errors.Join(err, os.Chmod(path, dirMode), syncDir(path)); err != nil {
		return "", errors.Join(err, os.RemoveAll(path))
	}
	return filepath.Base(path), nil
}

// writeFile creates a file and fails if it exists. The restrictive mode is set before the first
// byte is written.
func writeFile(path string, file File) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, keyMode)
	if err != nil {
		return fmt.Errorf("create file: %w", err)
	}
	_, err = f.Write(file.Data)
	if err := errors.Join(err, f.Chmod(file.Mode), f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// ReplaceLink makes dir/name a symlink to target in one step and replaces an existing file.
func ReplaceLink(dir, target, name string) error {
	link := func(tmp string) error { return os.Symlink(target, tmp) }
	return atomically(filepath.Join(dir, linkPrefix+name), filepath.Join(dir, name), link, os.Rename)
}

// linkPlainFiles replaces plain files with links to a version with the same content. The next
// version can then replace all of them at once.
func linkPlainFiles(dir string, names []string) error {
	names = append([]string{CertFile, KeyFile, BundleFile}, names...)
	if !slices.ContainsFunc(names, func(name string) bool {
		target, err := os.Readlink(filepath.Join(dir, name))
		return target != filepath.Join(dataLink, name) && !errors.Is(err, fs.ErrNotExist)
	}) {
		return nil
	}
	present, err := Dir(dir).Read("", names...)
	if err != nil || len(present) == 0 {
		return err
	}
	version, err := writeVersion(dir, present)
	if err != nil {
		return err
	}
	if err := switchTo(dir, version, nil); err != nil {
		return err
	}
	return linkFiles(dir, slices.Sorted(maps.Keys(present)))
}

// switchTo makes a version current if err is nil. Otherwise, or if that fails, it removes the
// version.
func switchTo(dir, version string, err error) error {
	if err == nil {
		err = ReplaceLink(dir, version, dataLink)
	}
	if current, _ := os.Readlink(filepath.Join(dir, dataLink)); err != nil && current != version {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, version)))
	}
	return err
}

// linkFiles creates the missing links to the current version.
func linkFiles(dir string, names []string) error {
	for _, name := range names {
		link := filepath.Join(dataLink, name)
		if target, err := os.Readlink(filepath.Join(dir, name)); err == nil && target == link {
			continue
		}
		if err := ReplaceLink(dir, link, name); err != nil {
			return err
		}
	}
	return nil
}

// removeOld removes leftovers of earlier versions and interrupted runs from dir: their
// directories, temporary links, and links to files that the current version no longer has.
func removeOld(dir, current string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("read directory: %w", err)
	}
	var errs []error
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		target, _ := os.Readlink(path)
		_, statErr := os.Stat(path)
		dangling := filepath.Dir(target) == dataLink && errors.Is(statErr, fs.ErrNotExist)
		old := strings.HasPrefix(e.Name(), versionPrefix) && e.Name() != current
		if old || dangling || strings.HasPrefix(e.Name(), linkPrefix) {
			errs = append(errs, os.RemoveAll(path))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove old version: %w", err)
	}
	return nil
}

// makeDir creates dir and its parents and syncs each new name to disk.
func makeDir(dir string) error {
	if info, err := os.Stat(dir); err == nil {
		if !info.IsDir() {
			return &RefusedError{Path: dir,
				Reason: "expected a directory, found a file; choose another path or move the file away"}
		}
		return nil
	}
	parent := filepath.Dir(dir)
	if parent != dir {
		if err := makeDir(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, dirMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("create directory: %w", err)
	}
	return syncDir(parent)
}

// syncDir syncs the names in a directory to disk, as fsync on a file syncs its content. Windows
// does not support this.
func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	f, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("open directory: %w", err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("sync directory %s: %w", dir, err)
	}
	return nil
}

// CreateFile creates a complete file in one step. If the file exists with the same content,
// CreateFile only sets its mode. If it exists with other content, CreateFile returns
// *RefusedError, because the existing content may be needed.
func CreateFile(path string, file File) error {
	switch found, err := os.ReadFile(path); {
	case err == nil && bytes.Equal(found, file.Data):
		return os.Chmod(path, file.Mode)
	case err == nil:
		return &RefusedError{Path: path,
			Reason: "expected no file, found one with other content; move it away, or choose another path"}
	case !errors.Is(err, os.ErrNotExist):
		return &RefusedError{Path: path, Reason: fmt.Sprintf("expected no file, found one that cannot be read: %v",
			errors.Unwrap(err))}
	}
	dir := filepath.Dir(path)
	if err := makeDir(dir); err != nil {
		return err
	}
	// A link fails if the name exists. A rename would replace a file that was created in the
	// meantime.
	return atomically(filepath.Join(dir, ".certgen-"+rand.Text()), path,
		func(tmp string) error { return writeFile(tmp, file) }, os.Link)
}

// atomically calls create to write the file tmp, and put (os.Rename or os.Link) to give it the
// name path in the same directory.
func atomically(tmp, path string, create func(tmp string) error, put func(tmp, path string) error) error {
	err := removeIfExists(tmp) // left by an interrupted run
	if err == nil {
		err = create(tmp)
	}
	if err == nil {
		err = put(tmp, path)
	}
	if err := errors.Join(err, removeIfExists(tmp)); err != nil { // after a rename, tmp no longer exists
		return fmt.Errorf("write %s: %w", path, err)
	}
	return syncDir(filepath.Dir(path))
}

func removeIfExists(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove file: %w", err)
	}
	return nil
}
