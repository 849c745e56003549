// SPDX-License-Identifier: Apache-2.0

package version

import (
	"runtime"
	"runtime/debug"
	"testing"
)

func TestGet(t *testing.T) {
	info := Get("no.such/module")
	if info.Version != "v0.0.0-unstamped" || info.GoVersion != runtime.Version() ||
		info.Platform != runtime.GOOS+"/"+runtime.GOARCH {
		t.Errorf("got %+v, want version v0.0.0-unstamped of %s on %s/%s", info, runtime.Version(), runtime.GOOS,
			runtime.GOARCH)
	}
	if info.Libraries == nil || len(info.Libraries) != 0 {
		t.Errorf("libraries: got %#v, want an empty map, which JSON shows as {}", info.Libraries)
	}
}

// TestLibraries checks that the versions are those of the modules in the binary. The test binary
// contains none, so the test provides them.
func TestLibraries(t *testing.T) {
	deps := []*debug.Module{{Path: "a.b/c", Version: "v1.2.3"}, {Path: "a.b/cd", Version: "v4.0.0"}}
	got := libraries(deps, []string{"a.b/c", "a.b/missing"})
	if len(got) != 1 || got["a.b/c"] != "v1.2.3" {
		t.Errorf("got %v, want a.b/c v1.2.3 only", got)
	}
}
