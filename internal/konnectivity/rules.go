// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"fmt"
	"slices"

	"example.com/extension-apiserver/internal/catalogue"
)

// finding returns a finding with the severity and the fix of its rule.
func finding(object, format string, args ...any) catalogue.Finding {
	return catalogue.Finding{Object: object, Evidence: fmt.Sprintf(format, args...)}
}

// rules contains all checks of a set, except for those in internal/certs/verify for its key
// pairs.
var rules = []catalogue.Check[*set]{
	catalogue.NewCheck("T01", checkParts),
	catalogue.NewCheck("T02", checkEgress),
	catalogue.NewCheck("T03", checkPlainHTTP),
	catalogue.NewCheck("T04", checkAuthentication),
	catalogue.NewCheck("T05", checkCAs),
	catalogue.NewCheck("T06", checkNames),
	catalogue.NewCheck("T07", checkSocket),
	catalogue.NewCheck("T08", checkCounts),
}

// Rules returns the rules in the order of their IDs.
func Rules() []catalogue.Rule { return catalogue.RulesOf(rules) }

// checkParts reports missing parts and undecodable files.
func checkParts(s *set) []catalogue.Finding {
	out := slices.Clone(s.unread)
	if _, err := s.egress(); err != nil {
		out = append(out, finding("", "%v", err))
	}
	for _, r := range s.roles() {
		if len(r.programs) == 0 {
			out = append(out, catalogue.Finding{Severity: r.missing, Evidence: "expected a container " + r.name +
				", found none"})
		}
	}
	return out
}
