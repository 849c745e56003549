// SPDX-License-Identifier: Apache-2.0

// Package version holds the version of the kit. The commands print it; the Makefile stamps it from git.
package version

import (
	"runtime"
	"runtime/debug"
	"slices"
)

// version is stamped with -ldflags "-X example.com/extension-apiserver/internal/version.version=...".
// The version of Kubernetes in k8s.io/component-base/version stays that of the libraries: their deprecation warnings are
// computed from it.
var version = "v0.0.0-unstamped"

// Info says what a binary was made of.
type Info struct {
	// Version is that of the kit, from git.
	Version string `json:"version"`
	// Libraries are the versions of the modules that decide how the binary behaves, by module path.
	Libraries map[string]string `json:"libraries"`
	GoVersion string            `json:"goVersion"`
	Platform  string            `json:"platform"`
}

// Get returns the version and those of the named modules that the binary contains.
func Get(modules ...string) Info {
	info := Info{Version: version, GoVersion: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	var deps []*debug.Module
	if build, ok := debug.ReadBuildInfo(); ok {
		deps = build.Deps
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
