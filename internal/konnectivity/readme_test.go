// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"example.com/extension-apiserver/pkg/envtest"
)

// TestReadmeOverlays: the overlays in docs/konnectivity/install.md can be rendered in folders
// next to konnectivity.
func TestReadmeOverlays(t *testing.T) {
	t.Parallel()
	var examples []string
	for _, block := range strings.Split(readFile(t, filepath.Join(root, "docs", "konnectivity", "install.md")),
		"```yaml\n")[1:] {
		if block, _, _ = strings.Cut(block, "```"); strings.Contains(block, "kind: Kustomization") {
			examples = append(examples, block)
		}
	}
	want := [][]string{
		{"namespace: clusters-demo", "kind: Service", "proxy-server:v0.36.0",
			"image: registry.example.com/certgen:v1.2.3", "--egress-selector-config-file="},
		{"proxy-server-host: konnectivity.example.com", "kind: NetworkPolicy", "proxy-agent:v0.36.0"},
	}
	if len(examples) != len(want) {
		t.Fatalf("%d overlays, want %d", len(examples), len(want))
	}
	for i, example := range examples {
		dir, err := os.MkdirTemp(root, ".overlay-") //nolint:usetesting // overlays name their neighbours by relative paths
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		write(t, dir, "kustomization.yaml", example)
		write(t, dir, "kube-apiserver.yaml", readFile(t, filepath.Join("testdata", "kube-apiserver-deployment.yaml")))
		out, err := exec.CommandContext(t.Context(), filepath.Join(root, "bin", envtest.DefaultMinor, "kubectl"),
			"kustomize", dir).CombinedOutput()
		if err != nil {
			t.Errorf("overlay %d: %v\n%s", i, err, out)
		}
		for _, text := range want[i] {
			if !strings.Contains(string(out), text) {
				t.Errorf("overlay %d renders no %q:\n%s", i, text, out)
			}
		}
	}
}
