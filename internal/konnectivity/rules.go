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
		"add its manifest to the directory", verify.Error, verify.Info),
	verify.NewCheck("T02", checkEgress,
		"kube-apiserver refuses the EgressSelectorConfiguration, or does not use it for aggregated APIs",
		"use a file from konnectivity/egress; the egress selection must be named cluster"),
	verify.NewCheck("T03", checkPlainHTTP,
		"the egress selection has an http:// URL, which kube-apiserver accepts and then panics",
		"use https:// with tlsConfig, or a Unix socket"),
	verify.NewCheck("T04", checkAuthentication,
		"the server does not authenticate agents, or expects credentials that they do not send",
		"use either tokens or certificates on both sides: add the component mtls to server and agents, or to neither"),
	verify.NewCheck("T05", checkCAs,
		"agents or kube-apiserver are authenticated by a CA that also signs other certificates, or one side does "+
			"not trust the other's certificate",
		"use the certificates and dedicated CAs of certgen init --with konnectivity, at the paths in the manifests"),
	verify.NewCheck("T06", checkNames,
		"the certificate does not contain the name or address to which clients connect",
		"issue it again with that name, or connect to a name that it contains"),
	verify.NewCheck("T07", checkSocket,
		"kube-apiserver cannot connect to the server: protocol, address, path or volume differ, or kube-apiserver "+
			"has no permission to open the socket",
		"use the same mode and address on both sides, or the same directory, owned by 65532, and add "+
			"kube-apiserver to that group"),
	verify.NewCheck("T08", checkCounts,
		"agents do not know the number of servers, so a kube-apiserver may have no agent",
		"use Leases in the same namespace on both sides, as the manifests do, or set --server-count to the number "+
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
