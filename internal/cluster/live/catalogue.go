// SPDX-License-Identifier: Apache-2.0

package live

import (
	"slices"

	"example.com/extension-apiserver/internal/certs/verify"
	"example.com/extension-apiserver/internal/frontproxy"
)

// checks contains all checks of a running cluster. K01 to K12 check the path from kube-apiserver
// to the servers, and P01 to P11 the front proxy. P01 is the rule of the checks of files, which
// read the allowed names from a flag.
var checks = []verify.Check[*observed]{
	verify.NewCheck("K01", checkInsecure,
		"an APIService has insecureSkipTLSVerify, so kube-apiserver sends users' requests to whoever answers",
		"give it a caBundle in the same write: certgen apply --clear-insecure", verify.Warning),
	verify.NewCheck("K02", checkCABundlePEM,
		"a caBundle is empty, no PEM, base64 twice, damaged, or read differently by crypto/x509 and client-go; "+
			"kube-apiserver answers 500 or trusts other CAs than meant",
		"write it again from the CAs: certgen apply", verify.Error, verify.Warning),
	verify.NewCheck("K03", checkServed,
		"an endpoint serves a certificate that kube-aggregator refuses with the caBundle: another CA, another name, "+
			"expired; a warning while the endpoint is not ready",
		"certgen verify on the served pair says why; apply the CA that signed it: certgen apply", verify.Error,
		verify.Warning),
	verify.NewCheck("K04", checkForeignCAs,
		"a caBundle holds a certificate that is expired, is no CA, or is not among the CAs that are stored beside "+
			"the serving pair",
		"take it out: certgen apply with the right ca.crt; a rotation that is under way does it at its end",
		verify.Warning),
	verify.NewCheck("K05", checkSameLeaf,
		"endpoints serve different certificates; that is so while new ones are rolled out, and should end",
		"look again in some minutes; if it stays, restart the servers with the old one", verify.Info),
	verify.NewCheck("K06", checkReloaded,
		"an endpoint serves another certificate than the one that is stored, in the Secret or in the directory: it "+
			"did not reload",
		"if the change is older than 5 minutes, look for a subPath mount or --cert-dir, and restart the server"),
	verify.NewCheck("K07", checkMounts,
		"the serving pair can never change under the server: a subPath mount, or an immutable Secret",
		"mount the Secret as a directory, and recreate it without immutable"),
	verify.NewCheck("K08", checkAnswers,
		"the API does not answer through a kube-apiserver, even if its condition Available, which can be stale, is "+
			"True; as info, a kube-apiserver could not be asked",
		"the other findings tell why; else look at the log of kube-apiserver and of the servers",
		verify.Error, verify.Info),
	verify.NewCheck("K12", checkReached,
		"the Service has no endpoints at the port that the APIServices name; as a warning, one could not be reached "+
			"from here, so it was not checked",
		"compare the ports of APIService, Service and pods; reach them through kube-apiserver: --port-forward; or "+
			"run certgen where pods can be reached, or name addresses: --endpoint", verify.Error, verify.Warning),
	{Rule: verify.AllowedName, Find: checkProxyName},
	verify.NewCheck("P02", checkAllowedNames,
		"--requestheader-allowed-names is empty, so every certificate of the front proxy's CA can name any user; an "+
			"error where that CA signs users too",
		"set it on every kube-apiserver: --requestheader-allowed-names=front-proxy-client", verify.Error,
		verify.Warning),
	verify.NewCheck("P03", checkTrustOverlap,
		"a CA of users is a CA of the front proxy too (same certificate or key, or one signed the other), so a "+
			"user's certificate can name any user; a warning where only the subjects are the same",
		"make a CA for the front proxy alone: certgen init --with front-proxy --client-ca FILE", verify.Error,
		verify.Warning),
	verify.NewCheck("P04", checkTrustConfigMap,
		"the ConfigMap "+frontproxy.ConfigMapName+" is missing, or CAs, names or headers in it are missing or "+
			"malformed; API servers reject front-proxy identities then",
		"set --requestheader-client-ca-file on every kube-apiserver; repair the ConfigMap in place, and never delete it"),
	verify.NewCheck("P11", checkProbes,
		"an endpoint does not believe the holder of the front proxy's certificate; as a warning, the probe could "+
			"not tell",
		"compare the ConfigMap's CAs and allowed names with the certificate, and the server's rights to read it",
		verify.Error, verify.Warning),
}

// Rules returns the rules of the checks of a running cluster, without those shared with the
// checks of files, in the order of their IDs.
func Rules() []verify.Rule {
	return slices.DeleteFunc(verify.RulesOf(checks), func(r verify.Rule) bool { return r.ID == verify.AllowedName.ID })
}
