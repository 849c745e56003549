// SPDX-License-Identifier: Apache-2.0

package scripts

import (
	"fmt"
	"strings"
	"testing"
)

// TestKindWithoutEngine checks that each target reports a missing container engine, with a hint.
func TestKindWithoutEngine(t *testing.T) {
	for name, variables := range map[string][]string{
		"does not answer": {"KIND_EXPERIMENTAL_PROVIDER=docker", "DOCKER_HOST=unix:///nonexistent/docker.sock"},
		"no command":      {"KIND_EXPERIMENTAL_PROVIDER=nonexistent-engine"},
	} {
		_, engine, _ := strings.Cut(variables[0], "=")
		want := fmt.Sprintf("missing: %s (runs the nodes of kind clusters)\nhint: install %[1]s and start it, ", engine)
		for _, target := range []string{"up", "load", "deploy", "down"} {
			t.Run(name+" "+target, func(t *testing.T) {
				_, out, err := script(t, "kind.sh "+target, variables...)
				if lines := strings.Count(strings.TrimSpace(out), "\n") + 1; err == nil ||
					!strings.HasPrefix(out, want) || lines != 2 {
					t.Errorf("got %v and:\n%s\nwant %q and two lines", err, out, want)
				}
			})
		}
	}
}
