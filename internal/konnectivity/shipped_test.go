// SPDX-License-Identifier: Apache-2.0

package konnectivity

import "testing"

// TestShipped: every combination of what konnectivity/ has, with certificates of certgen, is without error and warning; and without
// the annotations, which nobody can know beforehand, there is nothing but them.
func TestShipped(t *testing.T) {
	t.Parallel()
	for _, c := range combinations() {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			files := c.files(t)
			bare := check(t, newSet(t, files))
			for _, f := range bare.Findings {
				if f.ID != "K16" {
					t.Errorf("%s %s %s: %s", f.Severity, f.ID, f.Object, f.Evidence)
				}
			}
			if n := len(bare.Findings); n != 2 || bare.Failed(false) || !bare.Failed(true) {
				t.Errorf("%d findings without annotations, want a warning for the server and one for the agents", n)
			}
			report := check(t, newSet(t, annotated(t, files, bare)))
			if len(report.Findings) > 0 || report.Failed(true) || len(report.Checked) != 4 {
				t.Errorf("got %d parts and %+v, want 4 and no findings", len(report.Checked), report.Findings)
			}
		})
	}
}
