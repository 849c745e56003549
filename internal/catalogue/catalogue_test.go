// SPDX-License-Identifier: Apache-2.0

package catalogue

import (
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// forbidden are parts of commands that disable TLS verification, grant too much, or delete data.
var forbidden = regexp.MustCompile(`insecure-skip|insecureSkipTLSVerify\\?":true|cluster-admin|\*|finalizers|` +
	`delete (ns|namespaces?|pvc|secrets?|customresourcedefinitions?|crds?)\b|--force\b`)

// TestEntries checks that the entries are complete.
func TestEntries(t *testing.T) {
	var ids []string
	for _, e := range Entries() {
		if slices.Contains(ids, e.ID) {
			t.Errorf("%s occurs twice", e.ID)
		}
		ids = append(ids, e.ID)
		if rule := e.Certgen; rule != nil && (len(rule.Severities) == 0 || rule.Meaning == "" || rule.Fix == "") {
			t.Errorf("%s: want severities, a meaning and a fix of certgen", e.ID)
		}
		if e.Certgen != nil && e.Layer == "" {
			continue
		}
		if !slices.Contains(Layers, e.Layer) || !slices.Contains(severityOrder, e.Severity) || e.Title == "" ||
			e.Effect == "" || len(e.Fix) == 0 {
			t.Errorf("%s: want a layer, a severity, a title, an effect and a fix", e.ID)
		}
		for _, step := range e.Fix {
			if step.Text == "" || step.Command == "" || forbidden.MatchString(step.Command) {
				t.Errorf("%s: the step %+v has no text, no command or a forbidden one", e.ID, step)
			}
		}
	}
}

func TestSort(t *testing.T) {
	one := Finding{"C01", Error, "b", "x", "y"}
	first, last := Finding{"C02", Error, "a", "x", "y"}, Finding{"C01", Info, "a", "x", "y"}
	got := Sort([]Finding{last, one, first, {"C01", Warning, "a", "x", "y"}, one})
	want := []Finding{first, one, {"C01", Warning, "a", "x", "y"}, last}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("want the worst first, then by object, none twice (-want +got):\n%s", diff)
	}
}
