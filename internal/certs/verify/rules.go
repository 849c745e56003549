// SPDX-License-Identifier: Apache-2.0

package verify

import "example.com/extension-apiserver/internal/catalogue"

// checks contains all checks of files. C01 to C14 check a certificate, and F01 to F04 check a
// file.
var checks = []catalogue.Check[*target]{
	catalogue.NewCheck("C01", certified(checkChain)),
	catalogue.NewCheck("C02", certified(checkUsage)),
	catalogue.NewCheck("C03", certified(checkBothUsages)),
	catalogue.NewCheck("C04", certified(checkServerName)),
	catalogue.NewCheck("C05", certified(checkUnusualNames)),
	catalogue.NewCheck("C06", certified(checkKeyMatches)),
	catalogue.NewCheck("C07", certified(checkValidity)),
	catalogue.NewCheck("C08", certified(checkOutlivesCA)),
	catalogue.NewCheck("C09", certified(checkKeyStrength)),
	catalogue.NewCheck("C10", certified(checkSignatureAlgorithm)),
	catalogue.NewCheck("C11", certified(checkLeafIsCA)),
	catalogue.NewCheck("C12", certified(checkAuthority)),
	catalogue.NewCheck("C13", certified(checkPathLength)),
	catalogue.NewCheck("C14", certified(checkNameConstraints)),
	catalogue.NewCheck("F01", checkKeyMode),
	catalogue.NewCheck("F02", checkReadable),
	catalogue.NewCheck("F03", checkAtomicLayout),
	catalogue.NewCheck("F04", checkPEM),
	catalogue.NewCheck("P01", certified(checkAllowedName)),
}

// certified wraps find to skip targets without a parseable certificate. F02 and F04 report the
// reason.
func certified(find func(*target) []catalogue.Finding) func(*target) []catalogue.Finding {
	return func(t *target) []catalogue.Finding {
		if t.leaf == nil {
			return nil
		}
		return find(t)
	}
}

// Rules returns the rules of all checks of files, in the order of their IDs.
func Rules() []catalogue.Rule { return catalogue.RulesOf(checks) }
