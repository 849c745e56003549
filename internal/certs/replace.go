// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// CreateFile makes a file in one step, complete or not at all. A file that is there already with the same bytes gets
// the mode; one with other bytes is refused with *RefusedError, since nobody knows what would be lost with it.
func CreateFile(path string, file File) error {
	found, err := os.ReadFile(path)
	if err == nil && !bytes.Equal(found, file.Data) {
		return &RefusedError{Path: path, Reason: "expected no file, found one with other content; move it away, or choose another path"}
	}
	if err == nil {
		if err := os.Chmod(path, file.Mode); err != nil {
			return fmt.Errorf("set mode: %w", err)
		}
		return nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return &RefusedError{Path: path, Reason: fmt.Sprintf("expected no file, found one that cannot be read: %v", errors.Unwrap(err))}
	}
	dir := filepath.Dir(path)
	if err := makeDir(dir); err != nil {
		return err
	}
	// A link fails where the name exists, a rename would replace a file that was made meanwhile.
	return inOneStep(filepath.Join(dir, ".certgen-"+rand.Text()), path, func(tmp string) error { return writeFile(tmp, file) }, os.Link)
}

// inOneStep has create make the file tmp, and put, os.Rename or os.Link, give it the name path in the same directory.
func inOneStep(tmp, path string, create func(tmp string) error, put func(tmp, path string) error) error {
	err := removeIfThere(tmp) // of a run that was cut short
	if err == nil {
		err = create(tmp)
	}
	if err == nil {
		err = put(tmp, path)
	}
	if err := errors.Join(err, removeIfThere(tmp)); err != nil { // a rename has left nothing
		return fmt.Errorf("write %s: %w", path, err)
	}
	return syncDir(filepath.Dir(path))
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove file: %w", err)
	}
	return nil
}
