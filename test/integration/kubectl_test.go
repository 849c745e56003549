// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"strings"
	"testing"

	"example.com/extension-apiserver/pkg/envtest"
)

// TestKubectlVersion checks that the built control plane reports its version, because clients
// compare versions.
func TestKubectlVersion(t *testing.T) {
	out, stderr, err := envtest.Kubectl{}.Run(t.Context(), shared, "version", "-o", "json")
	if err != nil {
		t.Fatalf("kubectl version: %v\n%s", err, stderr)
	}
	var version struct{ ClientVersion, ServerVersion struct{ GitVersion string } }
	if err := json.Unmarshal([]byte(out), &version); err != nil {
		t.Fatal(err)
	}
	if version.ClientVersion.GitVersion != version.ServerVersion.GitVersion ||
		!strings.HasPrefix(version.ServerVersion.GitVersion, "v"+envtest.Minor()+".") {
		t.Errorf("client %s, server %s, want both the same v%s.x", version.ClientVersion.GitVersion,
			version.ServerVersion.GitVersion, envtest.Minor())
	}
}
