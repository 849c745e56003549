// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"strings"
	"testing"
)

// TestKindWithoutEngine: without a container engine each target says so, and what to do.
func TestKindWithoutEngine(t *testing.T) {
	for name, tc := range map[string]struct {
		variables []string
		want      string
		lines     int
	}{
		"does not answer": {[]string{"KIND_EXPERIMENTAL_PROVIDER=docker", "DOCKER_HOST=unix:///nonexistent/docker.sock"}, "kind: a container engine is needed and docker does not answer", 1},
		"no command":      {[]string{"KIND_EXPERIMENTAL_PROVIDER=nonexistent-engine"}, "missing: nonexistent-engine (runs the nodes of kind clusters)\nhint: install nonexistent-engine", 2},
	} {
		for _, target := range []string{"up", "load", "deploy", "down"} {
			t.Run(name+" "+target, func(t *testing.T) {
				_, out, err := script(t, "kind.sh "+target, tc.variables...)
				if lines := strings.Count(strings.TrimSpace(out), "\n") + 1; err == nil || !strings.HasPrefix(out, tc.want) || lines != tc.lines {
					t.Errorf("got %v and:\n%s\nwant %q and %d lines", err, out, tc.want, tc.lines)
				}
			})
		}
	}
}
