// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// file is a file of an archive.
type file struct {
	name string
	mode int64
	data []byte
}

// usersLayer returns the only layer besides the binary: the names of the user and group that the
// binary runs as. There is no shell, no package, and no root certificate, because the binaries
// get their trusted CAs from the cluster. 65532 is the "nonroot" of distroless images.
func usersLayer(created time.Time) (v1.Layer, error) {
	return layer(created, []file{
		{"etc/group", 0o644, []byte("root:x:0:\nnonroot:x:65532:\n")},
		{"etc/passwd", 0o644, []byte("root:x:0:0:root:/:/nonexistent\nnonroot:x:65532:65532:nonroot:/:/nonexistent\n")},
	})
}

// binaryLayer returns a layer with the binary in the root directory, and the binary's path there.
func binaryLayer(path string, created time.Time) (v1.Layer, string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, "", err
	}
	name := filepath.Base(path)
	binary, err := layer(created, []file{{name, 0o755, data}})
	return binary, "/" + name, err
}

// layer returns a gzipped tar of files that root owns, so that the user of the container cannot
// change them.
func layer(created time.Time, files []file) (v1.Layer, error) {
	var b bytes.Buffer
	if err := writeTar(&b, created, files); err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil }
	return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
}

// writeTar writes the files, each directory before the first file in it. All entries belong to
// 0:0 and have the same modification time.
func writeTar(w io.Writer, created time.Time, files []file) error {
	t := tar.NewWriter(w)
	made := map[string]bool{}
	for _, f := range files {
		for _, dir := range parents(f.name) {
			if made[dir] {
				continue
			}
			made[dir] = true
			header := &tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755, ModTime: created,
				Format: tar.FormatUSTAR}
			if err := t.WriteHeader(header); err != nil {
				return err
			}
		}
		header := &tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(f.data)),
			ModTime: created, Format: tar.FormatUSTAR}
		if err := t.WriteHeader(header); err != nil {
			return err
		}
		if _, err := t.Write(f.data); err != nil {
			return err
		}
	}
	return t.Close()
}

// parents returns the directories above name, outermost first.
func parents(name string) []string {
	var dirs []string
	for dir := filepath.Dir(name); dir != "."; dir = filepath.Dir(dir) {
		dirs = append(dirs, dir)
	}
	slices.Reverse(dirs)
	return dirs
}

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }
