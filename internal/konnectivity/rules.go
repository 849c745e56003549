// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"fmt"
	"slices"

	"example.com/extension-apiserver/internal/certs/verify"
)

// finding returns a finding with the severity and the fix of its rule.
func finding(object, format string, args ...any) verify.Finding {
	return verify.Finding{Object: object, Evidence: fmt.Sprintf(format, args...)}
}

// rules contains all checks of a set, except for those in internal/certs/verify for its key
// pairs.
var rules = []verify.Check[*set]{
	verify.NewCheck("T01", checkParts,
		"a part is missing or cannot be read: the configuration, the server or the agents; as info, kube-apiserver",
		"put its manifest into the directory", verify.Error, verify.Info),
	verify.NewCheck("T02", checkEgress,
		"kube-apiserver refuses the EgressSelectorConfiguration, or does not use it for aggregated APIs",
		"take one of konnectivity/egress; the selection must have the name cluster"),
	verify.NewCheck("T03", checkPlainHTTP,
		"an http:// URL, which kube-apiserver accepts and then panics",
		"use https:// with tlsConfig, or a Unix socket"),
	verify.NewCheck("T04", checkAuthentication,
		"the server does not authenticate agents, or expects something else than they send",
		"use tokens or certificates, one of them, on both sides: the component mtls of server and agents, or of neither"),
	verify.NewCheck("T05", checkCAs,
		"a CA that signs for others too decides who is an agent or kube-apiserver, or one side does not trust the "+
			"other's certificate",
		"use the pairs and CAs of certgen init --with konnectivity, which sign nothing else, under the paths in the "+
			"manifests"),
	verify.NewCheck("T06", checkNames,
		"the certificate does not contain the name or address that is dialled",
		"issue it again with that name, or dial a name that it contains"),
	verify.NewCheck("T07", checkSocket,
		"kube-apiserver and the server do not meet: another protocol, address, path or volume, or kube-apiserver "+
			"may not open the socket",
		"use the same mode and address on both sides, or the same directory, owned by 65532, and give "+
			"kube-apiserver that group"),
	verify.NewCheck("T08", checkCounts,
		"agents do not learn how many servers there are, so a kube-apiserver has no agent",
		"use Leases on both sides in the same namespace, as the manifests do, or set --server-count to the number "+
			"of kube-apiservers"),
}

// Rules returns the rules in the order of their IDs.
func Rules() []verify.Rule { return verify.RulesOf(rules) }

// checkParts reports missing parts and undecodable files.
func checkParts(s *set) []verify.Finding {
	out := slices.Clone(s.unread)
	if _, err := s.egress(); err != nil {
		out = append(out, finding("", "%v", err))
	}
	for _, r := range s.roles() {
		if len(r.programs) == 0 {
			out = append(out, verify.Finding{Severity: r.missing, Evidence: "expected a container " + r.name +
				", found none"})
		}
	}
	return out
}
