// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"slices"
	"strings"

	"example.com/extension-apiserver/internal/catalogue"
)

// tokenFlags are the flags for the server's verification of agents' tokens through
// kube-apiserver.
var tokenFlags = []string{"agent-namespace", "agent-service-account", "authentication-audience"}

// checkAuthentication checks that the server authenticates agents and that agents send what it
// expects. Without any of these flags, the server accepts every TLS client as an agent
// (CVE-2026-16242 in HyperShift).
func checkAuthentication(s *set) []catalogue.Finding {
	var out []catalogue.Finding
	tokens, certificates := false, false
	for _, p := range s.servers {
		missing := slices.DeleteFunc(slices.Clone(tokenFlags), func(name string) bool { return p.flags[name] != "" })
		token, certificate := len(missing) < len(tokenFlags), p.flags["cluster-ca-cert"] != ""
		switch {
		case !token && !certificate:
			out = append(out, finding(p.String(),
				"neither --%s nor --cluster-ca-cert: the server accepts every client that can reach it as an agent, "+
					"and sends it kube-apiserver's connections",
				strings.Join(tokenFlags, ", --")))
		case token && certificate:
			out = append(out, finding(p.String(), "both token flags and --cluster-ca-cert are set; the server refuses to start"))
		case token && len(missing) > 0:
			out = append(out, finding(p.String(), "--%s is missing; the server requires all of --%s",
				strings.Join(missing, ", --"), strings.Join(tokenFlags, ", --")))
		case token && p.flags["kubeconfig"] == "":
			out = append(out, finding(p.String(),
				"no --kubeconfig, with which the server sends TokenReviews to kube-apiserver"))
		}
		tokens, certificates = tokens || token, certificates || certificate
	}
	for _, p := range s.agents {
		if tokens && p.flags["service-account-token-path"] == "" {
			out = append(out, finding(p.String(), "no --service-account-token-path, but the server expects a token"))
		}
		if certificates && (p.flags["agent-cert"] == "" || p.flags["agent-key"] == "") {
			out = append(out, finding(p.String(),
				"no --agent-cert and --agent-key, but the server expects a certificate"))
		}
	}
	return out
}
