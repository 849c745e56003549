// SPDX-License-Identifier: Apache-2.0

package scaffold

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDocsURL: with --docs-url, alerts and the dashboard of a project link to that address, also
// after an upgrade, and the checksums are those of the written files.
func TestDocsURL(t *testing.T) {
	const docs = "https://docs.example.org/kit"
	for _, tc := range []struct{ docs, want, not string }{
		{"", docsURL + "docs/operate/runbooks.md", docs},
		{docs, docs + "/docs/operate/runbooks.md", docsURL},
		{docs + "/", docs + "/docs/operate/runbooks.md", docsURL},
	} {
		p := &project{dir: t.TempDir()}
		if err := copyKit(filepath.Join("..", ".."), p.dir, tc.docs); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"prometheusrule.yaml", "dashboard.json"} {
			data, err := os.ReadFile(p.path("kit", "manifests", "components", "monitoring", name))
			if err != nil {
				t.Fatal(err)
			}
			if text := string(data); !strings.Contains(text, tc.want) || strings.Contains(text, tc.not) {
				t.Errorf("--docs-url=%s: %s: want links to %s only:\n%s", tc.docs, name, tc.want, text)
			}
		}
		if edited, err := p.edited(); err != nil || len(edited) > 0 {
			t.Errorf("--docs-url=%s: edited files %q, %v, want none", tc.docs, edited, err)
		}
		recorded, err := os.ReadFile(p.path("kit", docsURLFile))
		if (err == nil) != (tc.docs != "") || tc.docs != "" && string(recorded) != docs+"/\n" {
			t.Errorf("--docs-url=%s: recorded %q, %v", tc.docs, recorded, err)
		}
	}
}
