// SPDX-License-Identifier: Apache-2.0

// Package version holds the version of the kit. The commands print it; the Makefile stamps it from git.
package version

import (
	"runtime"
	"runtime/debug"
)

// version is stamped with -ldflags "-X example.com/extension-apiserver/pkg/version.version=...".
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
	info := Info{Version: version, Libraries: map[string]string{}, GoVersion: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return info
	}
	for _, dep := range build.Deps {
		for _, module := range modules {
			if dep.Path == module {
				info.Libraries[module] = dep.Version
			}
		}
	}
	return info
}
