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

// The files of a pair, named as in a Secret of type kubernetes.io/tls.
const (
	CertFile   = "tls.crt"
	KeyFile    = "tls.key"
	BundleFile = "ca.crt" // of a leaf: the CAs that its peers should trust
)

// File permissions. A key is for its owner alone; whoever runs under another user gets a copy of its own.
const (
	keyMode  fs.FileMode = 0o600
	certMode fs.FileMode = 0o644
	dirMode  fs.FileMode = 0o755
	// caDirMode: nobody else has business where the key of a CA is.
	caDirMode fs.FileMode = 0o700
)

const (
	dataLink      = "..data" // the name that kubelet uses for the same purpose
	versionPrefix = "..v-"
	linkPrefix    = "..link-"
)

// Write stores the pair as tls.crt and tls.key in dir and, unless it is empty, the bundle as ca.crt. See WriteFiles.
func (p *KeyPair) Write(dir string, bundle Bundle) error { return WriteFiles(dir, p.Files(bundle)) }

// WriteFiles replaces the set of files in dir in one step, and makes dir where it is missing. Callers must not write
// to one directory at the same time (see Dir.Lock).
//
// Two renames, one for the certificate and one for its key, would leave a pair that does not match if the machine
// stopped in between. So the files go into a new directory, and one rename of the symlink ..data makes all of them
// current, as in a Secret that kubelet mounts:
//
//	tls.crt -> ..data/tls.crt    tls.key -> ..data/tls.key    ..data -> ..v-123    ..v-123/{tls.crt,tls.key}
//
// The paths dir/tls.crt and dir/tls.key never change, nor does what they mean for a mount of dir, since every link is
// relative. Links that are missing are made before the rename, so that a version is complete once it is current; and
// before that, plain files become links to a version of what they hold. The directory of the version before is removed
// at the end, which also tells servers to reload: their watch follows the symlinks and sees the old file go, and would
// not see the rename of ..data.
//
// On Windows, where not every user may make symlinks and none can be replaced in one step, they are plain files,
// replaced one by one.
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

// removeKey removes the key of a certificate that came without one: it is that of another certificate.
func removeKey(dir string, files Files) error {
	if _, ok := files[KeyFile]; ok || files[CertFile].Data == nil {
		return nil
	}
	return removeIfExists(filepath.Join(dir, KeyFile))
}

// replaceFiles replaces files one by one. Who reads between two of them finds a pair that does not match.
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

// writeVersion writes files into a new directory that nothing points to yet, and returns its name.
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

// writeFile makes a file that must not exist. The mode is narrow before the first byte is written.
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

// ReplaceLink makes dir/name a symlink to target in one step, whatever file it was before.
func ReplaceLink(dir, target, name string) error {
	link := func(tmp string) error { return os.Symlink(target, tmp) }
	return atomically(filepath.Join(dir, linkPrefix+name), filepath.Join(dir, name), link, os.Rename)
}

// linkPlainFiles makes links of files that are none yet, to a version with the same content, so that the next one
// replaces all at once.
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

// switchTo makes a version current, unless there was an error, or removes it.
func switchTo(dir, version string, err error) error {
	if err == nil {
		err = ReplaceLink(dir, version, dataLink)
	}
	if current, _ := os.Readlink(filepath.Join(dir, dataLink)); err != nil && current != version {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, version)))
	}
	return err
}

// linkFiles gives links to the current version those names that are none.
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

// removeOld removes what earlier versions, and runs that did not come to their end, left in dir: their directories,
// temporary links, and links to files that the current version no longer has.
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

// makeDir makes dir and the directories above it, and stores each new name on disk.
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

// syncDir stores the names in a directory, as fsync of a file stores its content. Windows cannot do that.
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

// CreateFile makes a file in one step, complete or not at all. A file that is there already with the same bytes gets
// the mode; one with other bytes is refused with *RefusedError, since nobody knows what would be lost with it.
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
	// A link fails where the name exists, a rename would replace a file that was made meanwhile.
	return atomically(filepath.Join(dir, ".certgen-"+rand.Text()), path,
		func(tmp string) error { return writeFile(tmp, file) }, os.Link)
}

// atomically has create make the file tmp, and put, os.Rename or os.Link, give it the name path in the same directory.
func atomically(tmp, path string, create func(tmp string) error, put func(tmp, path string) error) error {
	err := removeIfExists(tmp) // of a run that was cut short
	if err == nil {
		err = create(tmp)
	}
	if err == nil {
		err = put(tmp, path)
	}
	if err := errors.Join(err, removeIfExists(tmp)); err != nil { // a rename has left nothing
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
