// SPDX-License-Identifier: Apache-2.0

//go:build measure

package konnectivity

import (
	"testing"

	"example.com/extension-apiserver/pkg/envtest"
)

// TestMeasureRecovery does what TestRecovery does, with one mode after the other. Each kube-apiserver sets the condition that all share, so that those of
// TestRecovery help each other.
func TestMeasureRecovery(t *testing.T) {
	for _, mode := range envtest.Modes() {
		t.Run(string(mode), func(t *testing.T) {
			suffer(t, start(t, envtest.Options{Network: envtest.EndpointRouting, Tunnels: []envtest.Tunnel{{Mode: mode, Agents: 1}}}))
		})
	}
}
