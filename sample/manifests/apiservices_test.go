// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/extension-apiserver/internal/registration"
	"example.com/extension-apiserver/sample"
)

// TestAPIServices: the file has the versions of the API.
func TestAPIServices(t *testing.T) {
	const file = "api/apiservices.yaml"
	want, err := registration.Manifest(sample.API().GroupVersions())
	if err != nil {
		t.Fatal(err)
	}
	have, err := os.ReadFile(file)
	if diff := cmp.Diff(string(want), string(have)); err != nil || diff != "" {
		t.Errorf("%s: %v (-want +got); the command apiservices --kustomize prints it:\n%s", file, err, diff)
	}
}
