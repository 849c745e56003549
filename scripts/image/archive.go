// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"io/fs"
	"os"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// archive writes the OCI layout and a manifest.json into one tar file. containerd reads its
// index.json and so keeps the digest. Docker before version 25 reads only manifest.json, which
// supports one platform.
func archive(o options, images []platformImage) error {
	var files []file
	layout := os.DirFS(o.out)
	// WalkDir visits files in lexical order.
	err := fs.WalkDir(layout, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(layout, name)
		files = append(files, file{name, 0o644, data})
		return err
	})
	if err != nil {
		return err
	}
	if len(images) == 1 {
		manifest, err := dockerManifest(o.ref, images[0].image)
		if err != nil {
			return err
		}
		files = append(files, file{"manifest.json", 0o644, manifest})
	}
	out, err := os.Create(o.out + ".tar")
	if err != nil {
		return err
	}
	if err := writeTar(out, time.Unix(o.created, 0).UTC(), files); err != nil {
		_ = out.Close()
		return err
	}
	return out.Close()
}

// dockerManifest returns the manifest.json of docker save, which refers to the files of the OCI
// layout.
func dockerManifest(ref string, image v1.Image) ([]byte, error) {
	manifest, err := image.Manifest()
	if err != nil {
		return nil, err
	}
	blob := func(d v1.Descriptor) string { return "blobs/" + d.Digest.Algorithm + "/" + d.Digest.Hex }
	saved := struct {
		Config   string
		RepoTags []string
		Layers   []string
	}{blob(manifest.Config), []string{ref}, nil}
	for _, layer := range manifest.Layers {
		saved.Layers = append(saved.Layers, blob(layer))
	}
	return json.Marshal([]any{saved})
}
