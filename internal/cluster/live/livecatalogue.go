// SPDX-License-Identifier: Apache-2.0

package live

import (
	"slices"

	"example.com/extension-apiserver/internal/certs/verify"
	"example.com/extension-apiserver/internal/frontproxy"
)

// liveChecks is all that can be found in a running cluster: K01 to K12 on the way from kube-apiserver to the servers, P01 to
// P11 about the front proxy. P01 is the rule of the checks of files, which read the allowed names from a flag.
var liveChecks = []verify.Check[*observed]{
	{Rule: verify.Rule{ID: "K01", Severities: []verify.Severity{verify.Warning},
		Meaning: "an APIService has insecureSkipTLSVerify, so kube-apiserver sends users' requests to whoever answers",
		Fix:     "give it a caBundle in the same write: certgen apply --clear-insecure"}, Find: checkInsecure},
	{Rule: verify.Rule{ID: "K02", Severities: []verify.Severity{verify.Error, verify.Warning},
		Meaning: "a caBundle is empty, no PEM, base64 twice, damaged, or read differently by crypto/x509 and client-go; kube-apiserver answers 500 or trusts other CAs than meant",
		Fix:     "write it anew from the CAs: certgen apply"}, Find: checkCABundlePEM},
	{Rule: verify.Rule{ID: "K03", Severities: []verify.Severity{verify.Error, verify.Warning},
		Meaning: "an endpoint serves a certificate that kube-aggregator refuses with the caBundle: another CA, another name, expired; a warning while the endpoint is not ready",
		Fix:     "certgen verify on the served pair says why; apply the CA that signed it: certgen apply"}, Find: checkServed},
	{Rule: verify.Rule{ID: "K04", Severities: []verify.Severity{verify.Warning},
		Meaning: "a caBundle holds a certificate that is expired, is no CA, or is not among the CAs that are stored beside the serving pair",
		Fix:     "take it out: certgen apply with the right ca.crt; a rotation that is under way does it at its end"}, Find: checkForeignCAs},
	{Rule: verify.Rule{ID: "K05", Severities: []verify.Severity{verify.Info},
		Meaning: "endpoints serve different certificates; that is so while new ones are rolled out, and should end",
		Fix:     "look again in some minutes; if it stays, restart the servers with the old one"}, Find: checkSameLeaf},
	{Rule: verify.Rule{ID: "K06", Severities: []verify.Severity{verify.Error},
		Meaning: "an endpoint serves another certificate than the one that is stored, in the Secret or in the directory: it did not reload",
		Fix:     "if the change is older than 5 minutes, look for a subPath mount or --cert-dir, and restart the server"}, Find: checkReloaded},
	{Rule: verify.Rule{ID: "K07", Severities: []verify.Severity{verify.Error},
		Meaning: "the serving pair can never change under the server: a subPath mount, or an immutable Secret",
		Fix:     "mount the Secret as a directory, and make it anew without immutable"}, Find: checkMounts},
	{Rule: verify.Rule{ID: "K08", Severities: []verify.Severity{verify.Error, verify.Info},
		Meaning: "the API does not answer through a kube-apiserver, even if its condition Available, which can be stale, is True; as info, a kube-apiserver could not be asked",
		Fix:     "the other findings tell why; else look at the log of kube-apiserver and of the servers"}, Find: checkAnswers},
	{Rule: verify.Rule{ID: "K12", Severities: []verify.Severity{verify.Error, verify.Warning},
		Meaning: "the Service has no endpoints at the port that the APIServices name; as a warning, one could not be reached from here, so it was not checked",
		Fix:     "compare the ports of APIService, Service and pods; reach them through kube-apiserver: --port-forward; or run certgen where pods can be reached, or name addresses: --endpoint"}, Find: checkReached},
	{Rule: fileRule("P01"), Find: checkProxyName},
	{Rule: verify.Rule{ID: "P02", Severities: []verify.Severity{verify.Error, verify.Warning},
		Meaning: "--requestheader-allowed-names is empty, so every certificate of the front proxy's CA can name any user; an error where that CA signs users too",
		Fix:     "set it on every kube-apiserver: --requestheader-allowed-names=front-proxy-client"}, Find: checkAllowedNames},
	{Rule: verify.Rule{ID: "P03", Severities: []verify.Severity{verify.Error, verify.Warning},
		Meaning: "a CA of users is a CA of the front proxy too (same certificate or key, or one signed the other), so a user's certificate can name any user; a warning where only the subjects are the same",
		Fix:     "make a CA for the front proxy alone: certgen init --with front-proxy --client-ca FILE"}, Find: checkTrustOverlap},
	{Rule: verify.Rule{ID: "P04", Severities: []verify.Severity{verify.Error},
		Meaning: "the ConfigMap " + frontproxy.ConfigMapName + " is missing, or CAs, names or headers in it are missing or malformed; API servers reject front-proxy identities then",
		Fix:     "set --requestheader-client-ca-file on every kube-apiserver; repair the ConfigMap in place, and never delete it"}, Find: checkTrustConfigMap},
	{Rule: verify.Rule{ID: "P11", Severities: []verify.Severity{verify.Error, verify.Warning},
		Meaning: "an endpoint does not believe the holder of the front proxy's certificate; as a warning, the probe could not tell",
		Fix:     "compare the ConfigMap's CAs and allowed names with the certificate, and the server's rights to read it"}, Find: checkProbes},
}

// Rules returns the rules of the checks of a running cluster that checks of files do not have, in the order of their IDs.
func Rules() []verify.Rule {
	var out []verify.Rule
	for _, c := range liveChecks {
		if c.ID == "P01" {
			continue
		}
		r := c.Rule
		r.Severities = slices.Clone(r.Severities)
		out = append(out, r)
	}
	return out
}

// fileRule takes a rule from the checks of files: an ID means one thing.
func fileRule(id string) verify.Rule {
	rules := verify.Rules()
	return rules[slices.IndexFunc(rules, func(r verify.Rule) bool { return r.ID == id })]
}
