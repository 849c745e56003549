// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-cmp/cmp"
	"github.com/xeipuuv/gojsonschema"
)

// sbom writes an SBOM, validates it against the published schema, and returns its bytes and the
// decoded SBOM.
func sbom(t *testing.T, o options) ([]byte, *cdx.BOM) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "sbom.cdx.json")
	if err := write(out, o); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	result, err := schema(t).Validate(gojsonschema.NewBytesLoader(data))
	if err != nil {
		t.Fatal(err)
	}
	if !result.Valid() {
		t.Fatalf("the schema of CycloneDX 1.6: %v in\n%s", result.Errors(), data)
	}
	bom := &cdx.BOM{}
	if err := cdx.NewBOMDecoder(bytes.NewReader(data), cdx.BOMFileFormatJSON).Decode(bom); err != nil {
		t.Fatal(err)
	}
	return data, bom
}

// schema compiles the schemas that the library's module contains. The first refers to the others
// by their URLs.
func schema(t *testing.T) *gojsonschema.Schema {
	t.Helper()
	dir := strings.TrimSpace(run(t, ".", "go", "list", "-m", "-f", "{{.Dir}}", "github.com/CycloneDX/cyclonedx-go"))
	file := func(name string) gojsonschema.JSONLoader {
		return gojsonschema.NewReferenceLoader("file://" + filepath.Join(dir, "schema", name))
	}
	loader := gojsonschema.NewSchemaLoader()
	if err := loader.AddSchemas(file("spdx.schema.json"), file("jsf-0.82.schemax.json")); err != nil {
		t.Fatal(err)
	}
	compiled, err := loader.Compile(file("bom-1.6.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	return compiled
}

func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v", name, strings.Join(args, " "), err)
	}
	return string(out)
}

// library holds the fields that identify a module.
type library struct{ Name, Version, PackageURL, Sum string }

func libraries(components []cdx.Component) []library {
	var all []library
	for _, c := range components {
		if c.Type != cdx.ComponentTypeLibrary {
			continue
		}
		l := library{c.Name, c.Version, c.PackageURL, ""}
		if c.Properties != nil {
			l.Sum = (*c.Properties)[0].Value
		}
		all = append(all, l)
	}
	return all
}

// TestSBOMBinary checks that the SBOM of this test binary lists the modules that the go command
// finds in it, and its hash. A second SBOM has the same bytes.
func TestSBOMBinary(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	o := options{version: "v1.2.3", binaries: []string{self}}
	data, bom := sbom(t, o)
	if again, _ := sbom(t, o); !bytes.Equal(again, data) {
		t.Errorf("the second SBOM of the same binary differs: %s", cmp.Diff(string(again), string(data)))
	}

	lines := strings.Split(run(t, ".", "go", "version", "-m", self), "\n")
	version := strings.Fields(strings.TrimPrefix(lines[0], self+": go"))[0]
	want := []library{{"stdlib", version, "pkg:golang/stdlib@" + version, ""}}
	for _, line := range lines {
		if field := strings.Fields(line); len(field) == 4 && field[0] == "dep" {
			want = append(want, library{field[1], field[2], "pkg:golang/" + field[1] + "@" + field[2], field[3]})
		}
	}
	slices.SortFunc(want, func(a, b library) int { return strings.Compare(a.PackageURL, b.PackageURL) })
	if diff := cmp.Diff(want, libraries(*bom.Components)); diff != "" || len(want) < 3 {
		t.Errorf("%d modules of go version -m (-) and those of the SBOM (+) differ:\n%s", len(want), diff)
	}
	program := bom.Metadata.Component
	binary, err := os.ReadFile(self)
	sum := sha256.Sum256(binary)
	if got := (*program.Hashes)[0]; err != nil || got != (cdx.Hash{Algorithm: cdx.HashAlgoSHA256,
		Value: hex.EncodeToString(sum[:])}) {
		t.Errorf("got hash %v (%v), want the SHA-256 of the binary", got, err)
	}
	if program.Version != "v1.2.3" || len(*(*bom.Dependencies)[0].Dependencies) != len(want) {
		t.Errorf("got version %s and dependencies %v, want v1.2.3 and every module", program.Version, *bom.Dependencies)
	}
	if bom.Metadata.Timestamp != "" || bom.SerialNumber != "" {
		t.Errorf("got time %q and serial number %q, want none: they would differ with every build",
			bom.Metadata.Timestamp, bom.SerialNumber)
	}
}

// TestSBOMModules checks that the SBOM lists the linked module versions, not those that go.mod
// requires.
func TestSBOMModules(t *testing.T) {
	const path = "github.com/Azure/tool/v2"
	for name, test := range map[string]struct {
		dep  debug.Module
		want library
	}{
		"as required": {debug.Module{Path: path, Version: "v2.0.0", Sum: "h1:x"},
			library{path, "v2.0.0", "pkg:golang/" + path + "@v2.0.0", "h1:x"}},
		"other": {debug.Module{Path: path, Version: "v2.0.1", Sum: "h1:y"},
			library{path, "v2.0.1", "pkg:golang/" + path + "@v2.0.1", "h1:y"}},
		"incompatible": {debug.Module{Path: "a.example/b", Version: "v2.0.0+incompatible"},
			library{"a.example/b", "v2.0.0+incompatible", "pkg:golang/a.example/b@v2.0.0%2Bincompatible", ""}},
		"one element": {debug.Module{Path: "a.example", Version: "v1.0.0"},
			library{"a.example", "v1.0.0", "pkg:golang/a.example@v1.0.0", ""}},
		"a fork": {
			debug.Module{Path: path, Version: "v2.0.0", Replace: &debug.Module{Path: "b.example/fork",
				Version: "v2.0.2", Sum: "h1:z"}},
			library{"b.example/fork", "v2.0.2", "pkg:golang/b.example/fork@v2.0.2", "h1:z"},
		},
		"a directory": {debug.Module{Path: path, Version: "v2.0.0", Replace: &debug.Module{Path: "../fork"}},
			library{"../fork", "", "", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			got := moduleComponents(&debug.BuildInfo{GoVersion: "go1.26.8 X:experiment",
				Deps: []*debug.Module{&test.dep}})
			want := []library{{"stdlib", "1.26.8", "pkg:golang/stdlib@1.26.8", ""}, test.want}
			if diff := cmp.Diff(want, libraries(got)); diff != "" {
				t.Errorf("modules, want (-) and got (+):\n%s", diff)
			}
			if replaced := got[1].Pedigree != nil; replaced != (test.dep.Replace != nil) {
				t.Errorf("got %t that a module is named that was replaced", replaced)
			}
		})
	}
}

// TestSBOMImage checks that the SBOM of an image has a program for each platform, and lists
// shared modules once.
func TestSBOMImage(t *testing.T) {
	dir := t.TempDir()
	for name, data := range map[string]string{"go.mod": "module a.example/kit\n\ngo 1.26\n",
		"cmd/tool/main.go": "package main\n\nfunc main() {}\n"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	digest := "sha256:" + strings.Repeat("ab", 32)
	o := options{version: "v1.2.3", image: "registry.example:5000/team/tool:v1.2.3@" + digest}
	for _, arch := range []string{"arm64", "amd64"} {
		t.Setenv("GOARCH", arch)
		run(t, dir, "go", "build", "-trimpath", "-o", arch+"/tool", "./cmd/tool")
		o.binaries = append(o.binaries, filepath.Join(dir, arch, "tool"))
	}
	t.Setenv("GOARCH", "")
	data, bom := sbom(t, o)
	slices.Reverse(o.binaries)
	if again, _ := sbom(t, o); !bytes.Equal(again, data) {
		t.Error("the order of the binaries changes the SBOM")
	}
	image := bom.Metadata.Component
	if image.Type != cdx.ComponentTypeContainer || image.Name != "tool" || image.PackageURL != "pkg:oci/tool@"+digest {
		t.Errorf("got %s %s %s, want the container tool with its digest", image.Type, image.Name, image.PackageURL)
	}
	const amd64 = "pkg:golang/a.example/kit@v1.2.3?goarch=amd64&goos=linux#cmd/tool"
	const arm64 = "pkg:golang/a.example/kit@v1.2.3?goarch=arm64&goos=linux#cmd/tool"
	var refs []string
	for _, c := range *bom.Components {
		refs = append(refs, c.BOMRef)
	}
	stdlib := refs[len(refs)-1]
	if diff := cmp.Diff([]string{amd64, arm64, stdlib}, refs); diff != "" ||
		!strings.HasPrefix(stdlib, "pkg:golang/stdlib@") {
		t.Errorf("components, want (-) and got (+):\n%s", diff)
	}
	links := map[string][]string{}
	for _, d := range *bom.Dependencies {
		links[d.Ref] = *d.Dependencies
	}
	want := map[string][]string{image.BOMRef: {amd64, arm64}, amd64: {stdlib}, arm64: {stdlib}}
	if diff := cmp.Diff(want, links); diff != "" {
		t.Errorf("dependencies, want (-) and got (+), of %v:\n%s", slices.Sorted(maps.Keys(want)), diff)
	}
}

func TestSBOMErrors(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		options
		want string
	}{
		"no binary":     {options{version: "v1"}, "0 binaries"},
		"no version":    {options{binaries: []string{self}}, `--version ""`},
		"two, no image": {options{version: "v1", binaries: []string{self, self}}, "2 binaries"},
		"twice the same": {options{version: "v1", image: "a/b@sha256:" + strings.Repeat("0", 64),
			binaries: []string{self, self}}, "same platform"},
		"no digest":        {options{version: "v1", image: "a/b:v1", binaries: []string{self}}, "--image"},
		"not a Go program": {options{version: "v1", binaries: []string{"main.go"}}, "main.go: "},
		"no such file": {options{version: "v1", binaries: []string{"/nonexistent/tool"}},
			"/nonexistent/tool: no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "out")
			if err := write(out, test.options); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q in it", err, test.want)
			}
			if _, err := os.Stat(out); !os.IsNotExist(err) {
				t.Errorf("a file was written (%v)", err)
			}
		})
	}
}
