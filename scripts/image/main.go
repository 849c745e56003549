// SPDX-License-Identifier: Apache-2.0

// Command image writes a container image with one static binary. It writes an OCI layout, which
// `crane push` and `skopeo copy` read, and a tar file with the same content, which `kind load
// image-archive`, `ctr images import` and `docker load` read. It needs no Docker and no registry.
// The same binary and flags give the same bytes.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// options holds the flags.
type options struct {
	ref      string            // full name with tag, as in the field image of a container
	out      string            // directory of the layout; the archive is out + ".tar"
	created  int64             // seconds since 1970, for the image and every file in it
	binaries map[string]string // files by platform, such as linux/amd64
	labels   map[string]string
}

func main() {
	o := options{binaries: map[string]string{}, labels: map[string]string{}}
	flag.StringVar(&o.ref, "ref", "", "Name of the image with its tag. Required.")
	flag.StringVar(&o.out, "out", "",
		"Directory for the OCI layout, which is replaced. The archive is this name with .tar. Required.")
	flag.Int64Var(&o.created, "created", 0, "Time of the image and of its files, in seconds since 1970.")
	flag.Func("binary", "Binary as PLATFORM=FILE, such as linux/amd64=bin/server. Several create an index. Required.",
		keyValue(o.binaries))
	flag.Func("label", "Label as KEY=VALUE.", keyValue(o.labels))
	flag.Parse()
	digest, err := write(o)
	if err != nil {
		fmt.Fprintf(os.Stderr, "image: %v\n", err)
		os.Exit(1)
	}
	fmt.Printf("%s@%s\n", o.ref, digest)
}

func keyValue(into map[string]string) func(string) error {
	return func(s string) error {
		key, value, ok := strings.Cut(s, "=")
		if !ok || key == "" || value == "" {
			return errors.New("expected KEY=VALUE, both with content")
		}
		into[key] = value
		return nil
	}
}

// write writes the layout and the archive, and returns the digest of the image, or of the index
// if there are several platforms.
func write(o options) (digest v1.Hash, err error) {
	repository, tag, ok := strings.Cut(o.ref[strings.LastIndex(o.ref, "/")+1:], ":")
	if !ok || repository == "" || tag == "" || o.out == "" || len(o.binaries) == 0 {
		return digest, fmt.Errorf(
			"expected --ref NAME:TAG, --out DIRECTORY and at least one --binary, found --ref %q, --out %q, %d binaries",
			o.ref, o.out, len(o.binaries))
	}
	images, err := build(o)
	if err != nil {
		return digest, err
	}
	var named mutate.Appendable = images[0].image
	if len(images) > 1 {
		index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
		for _, i := range images {
			index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: i.image,
				Descriptor: v1.Descriptor{Platform: i.platform}})
		}
		named = index
	}
	// containerd reads the full name from the first annotation, skopeo and docker the tag from
	// the second.
	annotations := map[string]string{"io.containerd.image.name": o.ref, "org.opencontainers.image.ref.name": tag}
	descriptor := v1.Descriptor{Annotations: annotations}
	if len(images) == 1 {
		descriptor.Platform = images[0].platform
	}
	// Blobs of an earlier image would remain.
	if err := os.RemoveAll(o.out); err != nil {
		return digest, err
	}
	top := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: named, Descriptor: descriptor})
	if _, err := layout.Write(o.out, top); err != nil {
		return digest, fmt.Errorf("write the OCI layout %s: %w", o.out, err)
	}
	if err := archive(o, images); err != nil {
		return digest, fmt.Errorf("write %s.tar: %w", o.out, err)
	}
	return named.Digest()
}

// platformImage is the image for one platform.
type platformImage struct {
	platform *v1.Platform
	image    v1.Image
}

// build returns one image for each platform, ordered by platform name.
func build(o options) ([]platformImage, error) {
	created := time.Unix(o.created, 0).UTC()
	users, err := usersLayer(created)
	if err != nil {
		return nil, err
	}
	var images []platformImage
	for _, name := range sortedKeys(o.binaries) {
		platform, err := v1.ParsePlatform(name)
		if err != nil {
			return nil, fmt.Errorf("platform %q: %w", name, err)
		}
		if platform.OS == "" || platform.Architecture == "" {
			return nil, fmt.Errorf("platform %q: expected one such as linux/amd64", name)
		}
		binary, entrypoint, err := binaryLayer(o.binaries[name], created)
		if err != nil {
			return nil, err
		}
		image, err := mutate.ConfigFile(mutate.MediaType(empty.Image, types.OCIManifestSchema1), &v1.ConfigFile{
			OS: platform.OS, Architecture: platform.Architecture, Variant: platform.Variant,
			Created: v1.Time{Time: created},
			// The user is a number, because the kubelet cannot tell whether a named user is root
			// (runAsNonRoot).
			Config: v1.Config{User: "65532:65532", Entrypoint: []string{entrypoint}, WorkingDir: "/", Labels: o.labels},
			RootFS: v1.RootFS{Type: "layers"},
		})
		if err != nil {
			return nil, err
		}
		image = mutate.ConfigMediaType(image, types.OCIConfigJSON)
		if image, err = mutate.AppendLayers(image, users, binary); err != nil {
			return nil, err
		}
		images = append(images, platformImage{platform, image})
	}
	return images, nil
}
