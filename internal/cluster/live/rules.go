// SPDX-License-Identifier: Apache-2.0

package live

import (
	"slices"

	"example.com/extension-apiserver/internal/catalogue"
)

// allowedName is the ID of the check of the front proxy's common name. For files, a flag provides
// the allowed names; in a running cluster, its ConfigMap does.
const allowedName = "P01"

// checks contains all checks of a running cluster. K01 to K12 check the path from kube-apiserver
// to the servers, and P01 to P11 the front proxy. P01 is the rule of the checks of files, which
// read the allowed names from a flag.
var checks = []catalogue.Check[*observed]{
	catalogue.NewCheck("K01", checkInsecure),
	catalogue.NewCheck("K02", checkCABundlePEM),
	catalogue.NewCheck("K03", checkServed),
	catalogue.NewCheck("K04", checkForeignCAs),
	catalogue.NewCheck("K05", checkSameLeaf),
	catalogue.NewCheck("K06", checkReloaded),
	catalogue.NewCheck("K07", checkMounts),
	catalogue.NewCheck("K08", checkResponses),
	catalogue.NewCheck("K12", checkReached),
	catalogue.NewCheck(allowedName, checkProxyName),
	catalogue.NewCheck("P02", checkAllowedNames),
	catalogue.NewCheck("P03", checkTrustOverlap),
	catalogue.NewCheck("P04", checkTrustConfigMap),
	catalogue.NewCheck("P11", checkProbes),
}

// Rules returns the rules of the checks of a running cluster, without those shared with the
// checks of files, in the order of their IDs.
func Rules() []catalogue.Rule {
	return slices.DeleteFunc(catalogue.RulesOf(checks), func(r catalogue.Rule) bool { return r.ID == allowedName })
}
