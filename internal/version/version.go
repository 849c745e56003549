// SPDX-License-Identifier: Apache-2.0

// Package version provides the version of a binary: the version that scripts/build.sh stamps, or
// else the version of its main module.
package version

import (
	"cmp"
	"runtime"
	"runtime/debug"
	"slices"
)

// version is stamped with -ldflags "-X
// example.com/extension-apiserver/internal/version.version=...". The version of Kubernetes in
// k8s.io/component-base/version stays that of the libraries: their deprecation warnings are
// computed from it.
var version string

// Info describes what a binary was built from.
type Info struct {
	// Version is the version of the main module.
	Version string `json:"version"`
	// Libraries are the versions of the modules that decide how the binary behaves, by module
	// path.
	Libraries map[string]string `json:"libraries"`
	GoVersion string            `json:"goVersion"`
	Platform  string            `json:"platform"`
}

// Get returns the version, and the versions of the named modules that the binary contains.
func Get(modules ...string) Info {
	info := Info{Version: cmp.Or(version, "v0.0.0-unstamped"), GoVersion: runtime.Version(), Platform: runtime.GOOS +
		"/" + runtime.GOARCH}
	var deps []*debug.Module
	if build, ok := debug.ReadBuildInfo(); ok {
		deps = build.Deps
		// The version of a module that was downloaded by version. In a checkout it is (devel), or
		// derived from the commit.
		if version == "" && build.Main.Version != "(devel)" {
			info.Version = cmp.Or(build.Main.Version, info.Version)
		}
	}
	info.Libraries = libraries(deps, modules)
	return info
}

func libraries(deps []*debug.Module, modules []string) map[string]string {
	versions := map[string]string{}
	for _, dep := range deps {
		if slices.Contains(modules, dep.Path) {
			versions[dep.Path] = dep.Version
		}
	}
	return versions
}
