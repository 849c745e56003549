// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"regexp"
	"strings"
	"testing"
)

// TestChecks: each check has a unique ID, a level, a source address and a sentence.
func TestChecks(t *testing.T) {
	ids := map[string]bool{}
	areas := map[string]int{}
	for _, c := range Checks() {
		if !regexp.MustCompile(`^[a-z-]+/[a-z0-9-]+$`).MatchString(c.ID) || ids[c.ID] {
			t.Errorf("the id %q is none, or there twice", c.ID)
		}
		ids[c.ID] = true
		areas[c.Area()]++
		if c.Level != Required && c.Level != Recommended && c.Level != Optional {
			t.Errorf("%s: the level is %q", c.ID, c.Level)
		}
		if !strings.HasPrefix(c.Source, "https://") || !strings.HasSuffix(c.Text, ".") || c.run == nil {
			t.Errorf("%s: got the source %q and the text %q, want an address and a sentence, and something to run",
				c.ID, c.Source, c.Text)
		}
	}
	if len(ids) < 150 {
		t.Errorf("got %d checks, want at least 150", len(ids))
	}
	t.Logf("%d checks: %v", len(ids), areas)
}
