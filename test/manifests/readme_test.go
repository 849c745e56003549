// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit/policy"
)

// TestReadme: the README lists every component and overlay and no other, and its example of an overlay can be rendered.
func TestReadme(t *testing.T) {
	t.Parallel()
	text := readFile(t, filepath.Join(folder, "README.md"))
	for _, in := range []string{"components", "overlays"} {
		var listed []string
		for _, match := range regexp.MustCompile("(?m)^\\| `"+in+"/([a-z0-9-]+)` \\|").FindAllStringSubmatch(text, -1) {
			listed = append(listed, match[1])
		}
		slices.Sort(listed)
		if have := folders(t, in); !slices.Equal(listed, have) {
			t.Errorf("the README lists the %s %v, there are %v", in, listed, have)
		}
	}
	_, example, found := strings.Cut(text, "```yaml\n")
	example, _, closed := strings.Cut(example, "```")
	if !found || !closed {
		t.Fatal("the README has no example of an overlay")
	}
	// As a folder beside the overlays would have it.
	dir, err := os.MkdirTemp(filepath.Join(folder, ".."), ".overlay-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	example = strings.ReplaceAll(example, "../../", "../manifests/")
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(example), 0o600); err != nil {
		t.Fatal(err)
	}
	rendered := render(t, variant{overlay: filepath.Join("..", "..", filepath.Base(dir))})
	for _, want := range []string{"https://10.0.0.11:2379", "10.100.0.0/16", "registry.example.com/extension-apiserver:v1.2.3", "kind: ServiceMonitor"} {
		if !strings.Contains(rendered, want) {
			t.Errorf("the example of the README renders no %s:\n%s", want, rendered)
		}
	}
}

// TestAuditPolicy: the policy is one, and what is secret is logged without its content.
func TestAuditPolicy(t *testing.T) {
	t.Parallel()
	loaded, err := policy.LoadPolicyFromBytes([]byte(readFile(t, filepath.Join(folder, "components", "audit", "policy.yaml"))))
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range auditCases {
		if got := policy.NewPolicyRuleEvaluator(loaded).EvaluatePolicyRule(tc.request).Level; got != tc.want {
			t.Errorf("%s: level %s, want %s", tc.name, got, tc.want)
		}
	}
	if !loaded.OmitManagedFields || !slices.Contains(loaded.OmitStages, auditinternal.StageRequestReceived) {
		t.Errorf("policy %+v, want it to omit managed fields and the stage RequestReceived", loaded)
	}
}
