// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/extension-apiserver/internal/registration"
	"example.com/extension-apiserver/sample"
)

// TestAPIServices checks that the file has the versions of the sample.
func TestAPIServices(t *testing.T) {
	want, err := registration.Manifest(sample.API().GroupVersions(), sample.API().AllPermissions(),
		sample.API().NamespacePermissions)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(sampleFolder, "api", "apiservices.yaml")
	if diff := cmp.Diff(string(want), readFile(t, file)); diff != "" {
		t.Errorf("%s (-want +got); the command apiservices --kustomize prints it:\n%s", file, diff)
	}
}
