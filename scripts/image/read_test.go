// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"strings"
	"testing"
)

// The tests read the archives with the standard library only, so that they do not share code with
// the writer.

type descriptor struct {
	MediaType   string
	Digest      string
	Platform    struct{ OS, Architecture string }
	Annotations map[string]string
}

// entry is an entry of an archive, without its content.
type entry struct {
	Name     string
	Mode     int64
	Uid, Gid int
	ModTime  int64
}

// image is an image as a container runtime reads it.
type image struct {
	descriptor
	OS, Architecture string
	Created          string
	Config           struct {
		User       string
		Entrypoint []string
		Env        []string
		Labels     map[string]string
	}
	entries  []entry
	contents map[string][]byte
}

// readTar returns the entries in archive order, and the contents of the files.
func readTar(t *testing.T, r io.Reader) (entries []entry, contents map[string][]byte) {
	t.Helper()
	contents = map[string][]byte{}
	for archive := tar.NewReader(r); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return entries, contents
		}
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, entry{header.Name, header.Mode, header.Uid, header.Gid, header.ModTime.Unix()})
		if header.Typeflag != tar.TypeReg {
			continue
		}
		if contents[header.Name], err = io.ReadAll(archive); err != nil {
			t.Fatal(err)
		}
	}
}

// blobs holds the files of an OCI layout by path.
type blobs map[string][]byte

func openArchive(t *testing.T, path string) blobs {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	_, contents := readTar(t, f)
	return contents
}

// blob returns the content with that digest. It fails the test if the content has another digest.
func (b blobs) blob(t *testing.T, digest string) []byte {
	t.Helper()
	hash := strings.TrimPrefix(digest, "sha256:")
	data, ok := b["blobs/sha256/"+hash]
	sum := sha256.Sum256(data)
	if got := hex.EncodeToString(sum[:]); !ok || got != hash {
		t.Fatalf("blob %s: there is %t, its digest is sha256:%s", digest, ok, got)
	}
	return data
}

func (b blobs) decode(t *testing.T, data []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatalf("%v in %s", err, data)
	}
}

// index returns the descriptors in index.json, or in the index with that digest.
func (b blobs) index(t *testing.T, digest string) []descriptor {
	t.Helper()
	data := b["index.json"]
	if digest != "" {
		data = b.blob(t, digest)
	}
	var index struct{ Manifests []descriptor }
	b.decode(t, data, &index)
	return index.Manifests
}

// image reads the manifest, the configuration and the layers of an image.
func (b blobs) image(t *testing.T, d descriptor) image {
	t.Helper()
	i := image{descriptor: d, contents: map[string][]byte{}}
	var manifest struct {
		Config descriptor
		Layers []descriptor
	}
	b.decode(t, b.blob(t, d.Digest), &manifest)
	b.decode(t, b.blob(t, manifest.Config.Digest), &i)
	for _, layer := range manifest.Layers {
		unzipped, err := gzip.NewReader(bytes.NewReader(b.blob(t, layer.Digest)))
		if err != nil {
			t.Fatal(err)
		}
		entries, contents := readTar(t, unzipped)
		i.entries = append(i.entries, entries...)
		maps.Copy(i.contents, contents)
	}
	return i
}
