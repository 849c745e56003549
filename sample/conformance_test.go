// SPDX-License-Identifier: Apache-2.0

package sample_test

import (
	"path/filepath"
	"testing"

	"example.com/extension-apiserver/pkg/conformance"
	"example.com/extension-apiserver/pkg/envtest"
)

// conformanceTargets is filled by the files of the kinds: what may be changed in the samples of objects/.
var conformanceTargets = map[string]conformance.Target{}

// TestConformance: each kind behaves as the built-in ones do.
func TestConformance(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped in short mode: it checks each kind, for a minute")
	}
	known, err := envtest.New(t, envtest.Options{Server: "example.com/extension-apiserver/cmd/extension-apiserver"}).ConformanceTarget()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join("objects", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("objects/: %v, %d files, want at least one", err, len(files))
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			target, changes := known, conformanceTargets[filepath.Base(file)]
			target.Change, target.Invalid, target.Status = changes.Change, changes.Invalid, changes.Status
			if target.Sample, err = conformance.ReadSample(file); err != nil {
				t.Fatal(err)
			}
			report := conformance.Run(t, target)
			t.Logf("%d passed, %d skipped in %.0f s", report.Count("", conformance.Passed), report.Count("", conformance.Skipped), report.Seconds)
		})
	}
}
