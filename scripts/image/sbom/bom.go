// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"path"
	"runtime/debug"
	"slices"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/package-url/packageurl-go"
)

// describe returns the SBOM of the binary, or of the image with its binaries.
func describe(o options) (*cdx.BOM, error) {
	programs, modules := map[string]cdx.Component{}, map[string]cdx.Component{}
	links := map[string][]string{}
	for _, file := range o.binaries {
		info, err := buildinfo.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		program := programComponent(info, o.version, sha256.Sum256(data))
		if _, ok := programs[program.BOMRef]; ok {
			return nil, fmt.Errorf("%s: another binary is the same program for the same platform, %s", file,
				program.BOMRef)
		}
		programs[program.BOMRef] = program
		for _, m := range moduleComponents(info) {
			modules[m.BOMRef] = m
			links[program.BOMRef] = append(links[program.BOMRef], m.BOMRef)
		}
	}
	components := sorted(modules)
	top := sorted(programs)[0]
	if o.image != "" {
		var err error
		if top, err = imageComponent(o.image, o.version); err != nil {
			return nil, err
		}
		links[top.BOMRef] = slices.Collect(maps.Keys(programs))
		components = append(sorted(programs), components...)
	}
	bom := cdx.NewBOM()
	bom.Metadata = metadata(top)
	bom.Components = &components
	bom.Dependencies = dependencies(links)
	bom.Compositions = compositions(programs, modules)
	return bom, nil
}

// metadata omits the time and the serial number, as cdx:reproducible requires.
func metadata(top cdx.Component) *cdx.Metadata {
	m := &cdx.Metadata{
		Component:  &top,
		Lifecycles: &[]cdx.Lifecycle{{Phase: cdx.LifecyclePhasePostBuild}},
		Properties: &[]cdx.Property{{Name: "cdx:reproducible", Value: "true"}},
	}
	if self, ok := debug.ReadBuildInfo(); ok {
		m.Tools = &cdx.ToolsChoice{Components: &[]cdx.Component{{Type: cdx.ComponentTypeApplication, Name: self.Path}}}
	}
	return m
}

// programComponent returns the component of a binary: the main module with the path of the
// command in it.
func programComponent(info *debug.BuildInfo, version string, sum [sha256.Size]byte) cdx.Component {
	var properties []cdx.Property
	platform := packageurl.Qualifiers{}
	for _, s := range info.Settings {
		properties = append(properties, cdx.Property{Name: "go:build:" + s.Key, Value: s.Value})
		if s.Key == "GOOS" || s.Key == "GOARCH" {
			platform = append(platform, packageurl.Qualifier{Key: strings.ToLower(s.Key), Value: s.Value})
		}
	}
	command := strings.TrimPrefix(strings.TrimPrefix(info.Path, info.Main.Path), "/")
	url := golang(info.Main.Path, version)
	url.Qualifiers, url.Subpath = platform, command
	return cdx.Component{
		BOMRef: url.ToString(), Type: cdx.ComponentTypeApplication, Name: path.Base(info.Path), Version: version,
		PackageURL: url.ToString(),
		Hashes:     &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum[:])}},
		Properties: &properties,
	}
}

// moduleComponents returns the modules that are linked into the binary, and the standard library.
func moduleComponents(info *debug.BuildInfo) []cdx.Component {
	// Experiments may follow after a space.
	goVersion, _, _ := strings.Cut(strings.TrimPrefix(info.GoVersion, "go"), " ")
	// The Go vulnerability database uses this name for the standard library.
	components := []cdx.Component{moduleComponent(&debug.Module{Path: "stdlib", Version: goVersion})}
	for _, m := range info.Deps {
		components = append(components, moduleComponent(m))
	}
	return components
}

func moduleComponent(m *debug.Module) cdx.Component {
	linked := m
	if m.Replace != nil {
		linked = m.Replace
	}
	url := golang(linked.Path, linked.Version)
	c := cdx.Component{
		BOMRef: url.ToString(), Type: cdx.ComponentTypeLibrary, Name: linked.Path, Version: linked.Version,
		PackageURL: url.ToString(),
	}
	if linked.Version == "" { // a local directory, which others cannot look up
		c.PackageURL = ""
	}
	// The sum is not a hash of the component: h1 is the SHA-256 of a list of its files
	// (golang.org/x/mod/sumdb/dirhash).
	if linked.Sum != "" {
		c.Properties = &[]cdx.Property{{Name: "go:sum", Value: linked.Sum}}
	}
	if m.Replace != nil {
		c.Pedigree = &cdx.Pedigree{Ancestors: &[]cdx.Component{{
			Type: cdx.ComponentTypeLibrary, Name: m.Path, Version: m.Version,
			PackageURL: golang(m.Path, m.Version).ToString(),
		}}}
	}
	return c
}

// imageComponent returns the component of the image. It is identified by the digest, because the
// name in a registry may change.
func imageComponent(image, version string) (cdx.Component, error) {
	ref, err := name.NewDigest(image)
	if err != nil {
		return cdx.Component{}, fmt.Errorf("--image: %w", err)
	}
	base := path.Base(ref.RepositoryStr())
	url := packageurl.NewPackageURL(packageurl.TypeOCI, "", base, ref.DigestStr(), nil, "")
	return cdx.Component{
		BOMRef: url.ToString(), Type: cdx.ComponentTypeContainer, Name: base, Version: version,
		PackageURL: url.ToString(),
	}, nil
}

// golang returns the package URL of a module. It keeps the case of the path, because another case
// is another module, although the specification requires lower case
// (https://github.com/package-url/purl-spec/issues/308).
func golang(module, version string) *packageurl.PackageURL {
	return packageurl.NewPackageURL(packageurl.TypeGolang, strings.TrimSuffix(path.Dir(module), "."), path.Base(module),
		version, nil, "")
}

// dependencies returns the dependencies of programs on their modules, and of the image on its
// programs. A binary does not record which module needs which.
func dependencies(links map[string][]string) *[]cdx.Dependency {
	var all []cdx.Dependency
	for _, ref := range slices.Sorted(maps.Keys(links)) {
		on := slices.Sorted(slices.Values(links[ref]))
		all = append(all, cdx.Dependency{Ref: ref, Dependencies: &on})
	}
	return &all
}

// compositions declares that the dependencies of programs are complete and those of modules
// unknown.
func compositions(programs, modules map[string]cdx.Component) *[]cdx.Composition {
	refs := func(components map[string]cdx.Component) *[]cdx.BOMReference {
		var all []cdx.BOMReference
		for _, ref := range slices.Sorted(maps.Keys(components)) {
			all = append(all, cdx.BOMReference(ref))
		}
		return &all
	}
	return &[]cdx.Composition{
		{Aggregate: cdx.CompositionAggregateComplete, Dependencies: refs(programs)},
		{Aggregate: cdx.CompositionAggregateUnknown, Dependencies: refs(modules)},
	}
}

func sorted(components map[string]cdx.Component) []cdx.Component {
	var all []cdx.Component
	for _, ref := range slices.Sorted(maps.Keys(components)) {
		all = append(all, components[ref])
	}
	return all
}
