// SPDX-License-Identifier: Apache-2.0

//go:build measure

package konnectivity

import (
	"context"
	"fmt"
	"testing"
	"time"

	"example.com/extension-apiserver/internal/kubeconfig"
	"example.com/extension-apiserver/pkg/envtest"
)

// TestMeasureRecovery does the same as TestRecovery, with one mode after the other. Each
// kube-apiserver sets the condition that all share, so those of TestRecovery help each other.
func TestMeasureRecovery(t *testing.T) {
	for _, mode := range envtest.Modes() {
		t.Run(string(mode), func(t *testing.T) {
			suffer(t, start(t, envtest.Options{Network: envtest.EndpointRouting,
				Tunnels: []envtest.Tunnel{{Mode: mode, Agents: 1}}}))
		})
	}
}

// TestMeasureRenewal checks that a running server uses the renewed certificate of its kubeconfig
// before the old one expires. client-go checks for a new one every 5 minutes.
func TestMeasureRenewal(t *testing.T) {
	const lifetime = 7 * time.Minute
	e := start(t, envtest.Options{Network: envtest.EndpointRouting, Unregistered: true,
		Tunnels: []envtest.Tunnel{{Mode: envtest.GRPCOverUDS}}})
	issued := issueKubeconfig(t, e, only(e).URL, lifetime)
	end := time.Now().Add(lifetime)
	serveWith(t, e, issued)
	agentAdmitted(t, e)
	if _, err := kubeconfig.Write(t.Context(), renewed(issued)); err != nil {
		t.Fatal(err)
	}
	e.Eventually(t, "the first certificate to expire", 2*lifetime, func(context.Context) error {
		if left := time.Until(end); left > 0 {
			return fmt.Errorf("it has %s left", left)
		}
		return nil
	})
	agentAdmitted(t, e)
}

// renewed returns the options with the default lifetime.
func renewed(opts kubeconfig.Options) kubeconfig.Options {
	opts.Client.Lifetime = 0
	return opts
}
