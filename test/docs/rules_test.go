// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.com/extension-apiserver/internal/catalogue"
	"example.com/extension-apiserver/internal/certs/verify"
	"example.com/extension-apiserver/internal/cluster/live"
	"example.com/extension-apiserver/internal/konnectivity"
	tunnel "example.com/extension-apiserver/internal/konnectivity/live"
)

// TestRules checks that the pages have the tables of findings as the code has them, each followed
// by an empty line, and that no ID has two meanings.
func TestRules(t *testing.T) {
	meanings := map[string]string{}
	for name, tc := range map[string]struct {
		page  string
		rules []catalogue.Rule
	}{
		"files":        {"docs/operate/certificates.md", verify.Rules()},
		"live cluster": {"docs/operate/certificates.md", live.Rules()},
		"konnectivity": {"docs/konnectivity/troubleshooting.md", konnectivity.Rules()},
		"live tunnel":  {"docs/konnectivity/troubleshooting.md", tunnel.Rules()},
	} {
		for _, r := range tc.rules {
			if other, ok := meanings[r.ID]; ok && other != r.Meaning {
				t.Errorf("%s: %s is %q, and %q elsewhere; an id has one meaning", name, r.ID, r.Meaning, other)
			}
			meanings[r.ID] = r.Meaning
		}
		page, err := os.ReadFile(filepath.Join("..", "..", tc.page))
		if err != nil {
			t.Fatal(err)
		}
		if table := rulesTable(tc.rules); !strings.Contains(string(page), "\n"+table+"\n") {
			t.Errorf("%s: %s does not hold this table with an empty line after it:\n%s", name, tc.page, table)
		}
	}
}

func rulesTable(rules []catalogue.Rule) string {
	var out strings.Builder
	out.WriteString("| id | severity | what is wrong | what to do |\n|---|---|---|---|\n")
	cell := strings.NewReplacer("|", `\|`, "<", `\<`).Replace
	for _, r := range rules {
		var severities []string
		for _, s := range r.Severities {
			severities = append(severities, string(s))
		}
		fmt.Fprintf(&out, "| %s | %s | %s | %s |\n", r.ID, strings.Join(severities, ", "), cell(r.Meaning), cell(r.Fix))
	}
	return out.String()
}
