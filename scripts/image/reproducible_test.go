// SPDX-License-Identifier: Apache-2.0

//go:build reproducible

package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"debug/elf"
	"encoding/hex"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// names lists the images of the kit.
var names = []string{"extension-apiserver", "certgen"}

// printsVersion maps each binary to the argument that makes it print its name and version.
var printsVersion = map[string]string{"extension-apiserver": "version", "certgen": "--version"}

// commitTime is the commit time in the copies of the tree, in seconds since 1970.
const commitTime = 1_767_225_600

// checkout is a copy of the tree, committed and tagged v1.2.3.
type checkout struct {
	dir string
	env []string
}

func newCheckout(t *testing.T, env ...string) checkout {
	t.Helper()
	c := checkout{dir: t.TempDir(), env: append(os.Environ(), env...)}
	copyTree := exec.CommandContext(t.Context(), filepath.Join("..", "copy-tree.sh"), c.dir)
	if out, err := copyTree.CombinedOutput(); err != nil {
		t.Fatalf("copy the tree: %v\n%s", err, out)
	}
	c.run(t, `git init -q && git add -A
		export GIT_AUTHOR_DATE="1767225600 +0000" GIT_COMMITTER_DATE="1767225600 +0000"
		git -c user.name=image -c user.email=image@localhost commit -qm base && git tag v1.2.3`)
	return c
}

// run runs commands in the checkout and returns their standard output.
func (c checkout) run(t *testing.T, commands string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-euc", commands)
	cmd.Dir, cmd.Env = c.dir, c.env
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", commands, err, out, stderr.Bytes())
	}
	return string(out)
}

// image returns the image of that name for this machine's platform.
func (c checkout) image(t *testing.T, name string) image {
	t.Helper()
	archive := openArchive(t, filepath.Join(c.dir, "bin", "images", name+".tar"))
	top := archive.index(t, "")
	if len(top) != 1 {
		t.Fatalf("%s.tar: got %d images, want 1", name, len(top))
	}
	return archive.image(t, top[0])
}

// TestReproducible builds all images twice: in folders with different names, with the build cache
// of this machine and with an empty one, and with different user settings. Then it checks the
// images, and that changing a file changes them.
func TestReproducible(t *testing.T) {
	first := newCheckout(t, "TZ=UTC", "LANG=C")
	second := newCheckout(t, "GOCACHE="+t.TempDir(), "TZ=Asia/Kathmandu", "LANG=de_DE.UTF-8", "GOFLAGS=-buildvcs=true",
		"USER=somebody")
	began := time.Now()
	want := first.run(t, "umask 022; make --no-print-directory image")
	t.Logf("the first folder: %.0f s\n%s", time.Since(began).Seconds(), want)
	began = time.Now()
	got := second.run(t, "umask 077; make --no-print-directory image")
	t.Logf("the second folder: %.0f s\n%s", time.Since(began).Seconds(), got)
	if got != want || strings.Count(want, "@sha256:") != len(names) {
		t.Errorf("got %swant the same digests of %d images:\n%s", got, len(names), want)
	}
	for _, name := range names {
		for _, file := range []string{name + ".tar", name + ".cdx.json"} {
			a, errA := os.ReadFile(filepath.Join(first.dir, "bin", "images", file))
			b, errB := os.ReadFile(filepath.Join(second.dir, "bin", "images", file))
			if errA != nil || errB != nil || !bytes.Equal(a, b) {
				t.Errorf("%s: %v, %v, the two files differ, of %d and %d bytes", file, errA, errB, len(a), len(b))
			}
		}
		t.Run(name, func(t *testing.T) { checkImage(t, first, name, "v1.2.3") })
	}
	first.run(t, "echo >>README.md; make --no-print-directory image")
	for _, name := range names {
		t.Run(name+"-dirty", func(t *testing.T) { checkImage(t, first, name, "v1.2.3-dirty") })
	}
}

// checkImage checks the complete contents of the image, and runs its binary.
func checkImage(t *testing.T, c checkout, name, version string) {
	i := c.image(t, name)
	if want := wantEntries(name, commitTime); !reflect.DeepEqual(i.entries, want) {
		t.Errorf("got files %+v, want only %+v", i.entries, want)
	}
	if i.Config.User != "65532:65532" || !reflect.DeepEqual(i.Config.Entrypoint, []string{"/" + name}) {
		t.Errorf("got user %q and entrypoint %q, want 65532:65532 and /%s", i.Config.User, i.Config.Entrypoint, name)
	}
	want := map[string]string{
		"org.opencontainers.image.title":    name,
		"org.opencontainers.image.version":  version,
		"org.opencontainers.image.revision": strings.TrimSpace(c.run(t, "git rev-parse HEAD")),
		"org.opencontainers.image.source":   "https://" + strings.TrimSpace(c.run(t, "go list -m")),
		"org.opencontainers.image.licenses": "Apache-2.0",
	}
	if !reflect.DeepEqual(i.Config.Labels, want) {
		t.Errorf("got labels %v, want %v", i.Config.Labels, want)
	}
	if ref := "localhost/" + name + ":" + version; i.Annotations["io.containerd.image.name"] != ref ||
		c.run(t, "cat bin/images/"+name+".ref") != ref+"\n" {
		t.Errorf("got annotations %v, want the name %s, and in the file .ref too", i.Annotations, ref)
	}

	binary := i.contents[name]
	program, err := elf.NewFile(bytes.NewReader(binary))
	if err != nil {
		t.Fatal(err)
	}
	if libraries, err := program.ImportedLibraries(); err != nil || len(libraries) > 0 ||
		program.Section(".interp") != nil {
		t.Errorf("got libraries %v, %v, want a static binary: there are none in the image", libraries, err)
	}
	if bytes.Contains(binary, []byte(c.dir)) {
		t.Errorf("the binary holds the path of the folder that it was built in, %s", c.dir)
	}
	// The binary needs only the files of the image: no environment, an empty directory.
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, binary, 0o700); err != nil { //nolint:gosec // it must be executable
		t.Fatal(err)
	}
	checkSBOM(t, c, i, name, path)
	cmd := exec.CommandContext(t.Context(), path, printsVersion[name])
	cmd.Dir, cmd.Env = t.TempDir(), []string{}
	out, err := cmd.CombinedOutput()
	words := strings.FieldsFunc(string(out), func(r rune) bool { return r == ' ' || r == ',' })
	if err != nil || len(words) < 2 || words[0] != name || words[1] != version {
		t.Errorf("%s %s: got %s, %v, want %s %s", name, printsVersion[name], out, err, name, version)
	}
}

// checkSBOM compares the SBOM of the image with the image's digest and its binary.
func checkSBOM(t *testing.T, c checkout, i image, name, path string) {
	type component struct {
		Name, Version, Purl string
		Hashes              []struct{ Alg, Content string }
	}
	var bom struct {
		Metadata   struct{ Component component }
		Components []component
	}
	if err := json.Unmarshal([]byte(c.run(t, "cat bin/images/"+name+".cdx.json")), &bom); err != nil {
		t.Fatal(err)
	}
	if got, want := bom.Metadata.Component.Purl, "pkg:oci/"+name+"@"+i.Digest; got != want {
		t.Errorf("SBOM: got the image %s, want %s", got, want)
	}
	got := map[string]string{}
	for _, c := range bom.Components {
		got[c.Name] = c.Version
	}
	sum := sha256.Sum256(i.contents[name])
	if program := bom.Components[0]; len(program.Hashes) != 1 ||
		program.Hashes[0].Content != hex.EncodeToString(sum[:]) {
		t.Errorf("SBOM: got %+v, want the binary with its hash %x", program, sum)
	}
	build, err := buildinfo.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{name: i.Config.Labels["org.opencontainers.image.version"],
		"stdlib": strings.TrimPrefix(build.GoVersion, "go")}
	for _, dep := range build.Deps {
		want[dep.Path] = dep.Version
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("SBOM: got components %v, want %v", got, want)
	}
}
