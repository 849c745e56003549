// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

const testTime = 1_700_000_000

func testOptions(t *testing.T, platforms ...string) options {
	t.Helper()
	dir := t.TempDir()
	o := options{
		ref: "registry.example:5000/team/tool:v1", out: filepath.Join(dir, "images", "tool"), created: testTime,
		binaries: map[string]string{}, labels: map[string]string{"org.opencontainers.image.version": "v1"},
	}
	for _, platform := range platforms {
		path := filepath.Join(dir, strings.ReplaceAll(platform, "/", "-"), "tool")
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		// The mode in the image must not depend on the mode of the file.
		if err := os.WriteFile(path, []byte("binary of "+platform), 0o600); err != nil {
			t.Fatal(err)
		}
		o.binaries[platform] = path
	}
	return o
}

// wantEntries returns the only entries that an image may contain.
func wantEntries(binary string, created int64) []entry {
	return []entry{
		{"etc/", 0o755, 0, 0, created},
		{"etc/group", 0o644, 0, 0, created},
		{"etc/passwd", 0o644, 0, 0, created},
		{binary, 0o755, 0, 0, created},
	}
}

func TestWrite(t *testing.T) {
	o := testOptions(t, "linux/amd64")
	digest, err := write(o)
	if err != nil {
		t.Fatal(err)
	}
	archive := openArchive(t, o.out+".tar")
	top := archive.index(t, "")
	if len(top) != 1 || top[0].Digest != digest.String() {
		t.Fatalf("got %+v in index.json, want the image %s", top, digest)
	}
	got := archive.image(t, top[0])
	if !reflect.DeepEqual(got.entries, wantEntries("tool", testTime)) {
		t.Errorf("got files %+v, want %+v", got.entries, wantEntries("tool", testTime))
	}
	if string(got.contents["tool"]) != "binary of linux/amd64" {
		t.Errorf("got the binary %q", got.contents["tool"])
	}
	if !strings.Contains(string(got.contents["etc/passwd"]), "\nnonroot:x:65532:65532:") ||
		!strings.Contains(string(got.contents["etc/group"]), "\nnonroot:x:65532:") {
		t.Errorf("got %s%s, want nonroot with 65532 in both", got.contents["etc/passwd"], got.contents["etc/group"])
	}
	if got.Config.User != "65532:65532" || !reflect.DeepEqual(got.Config.Entrypoint, []string{"/tool"}) ||
		got.OS != "linux" || got.Architecture != "amd64" {
		t.Errorf("got configuration %+v for %s/%s, want user 65532:65532, entrypoint /tool, linux/amd64", got.Config,
			got.OS, got.Architecture)
	}
	if !reflect.DeepEqual(got.Config.Labels, o.labels) || got.Created != "2023-11-14T22:13:20Z" {
		t.Errorf("got labels %v and time %s, want %v and 2023-11-14T22:13:20Z", got.Config.Labels,
			got.Created, o.labels)
	}
	wantNames := map[string]string{"io.containerd.image.name": o.ref, "org.opencontainers.image.ref.name": "v1"}
	if !reflect.DeepEqual(top[0].Annotations, wantNames) {
		t.Errorf("got annotations %v, want %v", top[0].Annotations, wantNames)
	}
	var saved []struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	archive.decode(t, archive["manifest.json"], &saved)
	if len(saved) != 1 || len(saved[0].Layers) != 2 || archive[saved[0].Config] == nil ||
		archive[saved[0].Layers[1]] == nil || saved[0].RepoTags[0] != o.ref {
		t.Errorf("got manifest.json %+v, want one image whose files are in the archive", saved)
	}
}

func TestWriteIndex(t *testing.T) {
	o := testOptions(t, "linux/arm64", "linux/amd64")
	digest, err := write(o)
	if err != nil {
		t.Fatal(err)
	}
	archive := openArchive(t, o.out+".tar")
	top := archive.index(t, "")
	if len(top) != 1 || top[0].Digest != digest.String() {
		t.Fatalf("got %+v in index.json, want the index %s", top, digest)
	}
	for i, d := range archive.index(t, top[0].Digest) {
		want := []string{"amd64", "arm64"}[i]
		got := archive.image(t, d)
		if d.Platform.Architecture != want || got.Architecture != want ||
			string(got.contents["tool"]) != "binary of linux/"+want {
			t.Errorf("image %d: got %s, %s with %q, want %s", i, d.Platform.Architecture, got.Architecture,
				got.contents["tool"], want)
		}
	}
	if _, ok := archive["manifest.json"]; ok {
		t.Error("there is a manifest.json, which cannot hold two platforms")
	}
}

// TestWriteTwice checks that the second image replaces the first, and that no blob of the first
// remains.
func TestWriteTwice(t *testing.T) {
	o := testOptions(t, "linux/amd64")
	first, err := write(o)
	if err != nil {
		t.Fatal(err)
	}
	if second, err := write(o); err != nil || second != first {
		t.Errorf("the same again: got %s, %v, want %s", second, err, first)
	}
	if err := os.WriteFile(o.binaries["linux/amd64"], []byte("another"), 0o600); err != nil {
		t.Fatal(err)
	}
	if other, err := write(o); err != nil || other == first {
		t.Errorf("another binary: got %s, %v, want another digest", other, err)
	}
	if files, err := os.ReadDir(filepath.Join(o.out, "blobs", "sha256")); err != nil || len(files) != 4 {
		t.Errorf("got %d blobs, %v, want manifest, configuration and two layers", len(files), err)
	}
}

func TestWriteErrors(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*options)
		want   string
	}{
		"no tag":    {func(o *options) { o.ref = "registry.example:5000/tool" }, `expected --ref NAME:TAG`},
		"no out":    {func(o *options) { o.out = "" }, `expected --ref NAME:TAG, --out DIRECTORY`},
		"no binary": {func(o *options) { o.binaries = nil }, "0 binaries"},
		"no such file": {func(o *options) { o.binaries["linux/amd64"] = "/nonexistent/tool" },
			"/nonexistent/tool: no such file"},
		"platform": {func(o *options) { o.binaries["linux"] = o.binaries["linux/amd64"] },
			`platform "linux": expected one such as linux/amd64`},
	} {
		t.Run(name, func(t *testing.T) {
			o := testOptions(t, "linux/amd64")
			test.change(&o)
			if _, err := write(o); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q in it", err, test.want)
			}
		})
	}
}
