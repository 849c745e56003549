// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"strings"
	"testing"
)

// TestKindWithoutEngine: without a container engine each target says so in one line.
func TestKindWithoutEngine(t *testing.T) {
	for name, variables := range map[string][]string{
		"does not answer": {"KIND_EXPERIMENTAL_PROVIDER=docker", "DOCKER_HOST=unix:///nonexistent/docker.sock"},
		"no command":      {"KIND_EXPERIMENTAL_PROVIDER=nonexistent-engine"},
	} {
		for _, target := range []string{"up", "load", "deploy", "down"} {
			t.Run(name+" "+target, func(t *testing.T) {
				_, out, err := script(t, "kind.sh "+target, variables...)
				if err == nil || !strings.HasPrefix(out, "kind: a container engine is needed") || strings.Contains(out, "\n") {
					t.Errorf("got %v and:\n%s\nwant one line that a container engine is needed", err, out)
				}
			})
		}
	}
}
