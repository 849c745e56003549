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
		"an APIService has insecureSkipTLSVerify, so kube-apiserver sends users' requests to any server that responds",
		"set a caBundle in the same write: certgen apply --clear-insecure", verify.Warning),
	verify.NewCheck("K02", checkCABundlePEM,
		"a caBundle is empty, not PEM, encoded in base64 twice, damaged, or read differently by crypto/x509 and "+
			"client-go; kube-apiserver responds with 500 or trusts unintended CAs",
		"write the caBundle again: certgen apply", verify.Error, verify.Warning),
	verify.NewCheck("K03", checkServed,
		"an endpoint serves a certificate that the caBundle does not verify, so kube-aggregator refuses it: wrong "+
			"CA, wrong name, or expired; a warning while the endpoint is not ready",
		"check the certificate with certgen verify; apply the CA that signed it: certgen apply", verify.Error,
		verify.Warning),
	verify.NewCheck("K04", checkForeignCAs,
		"a caBundle contains a certificate that has expired, is not a CA, or is not in the ca.crt of the stored "+
			"serving certificate",
		"remove it: certgen apply with the right ca.crt; a rotation in progress removes it at the end",
		verify.Warning),
	verify.NewCheck("K05", checkSameLeaf,
		"endpoints serve different certificates, which is normal only during a rollout",
		"check again in a few minutes; if this persists, restart the servers that serve the old certificate", verify.Info),
	verify.NewCheck("K06", checkReloaded,
		"an endpoint does not serve the certificate that the Secret or the directory contains, so the server did not "+
			"reload it",
		"if the change is older than 5 minutes, check for a subPath mount or --cert-dir, and restart the server"),
	verify.NewCheck("K07", checkMounts,
		"the server cannot receive a new serving certificate, because of a subPath mount or an immutable Secret",
		"mount the Secret as a directory, and recreate an immutable Secret without immutable"),
	verify.NewCheck("K08", checkResponses,
		"the API does not respond through a kube-apiserver, even if its condition Available, which can be stale, is "+
			"True; as info, a kube-apiserver could not be reached",
		"correct the other findings first; otherwise see the logs of kube-apiserver and of the servers",
		verify.Error, verify.Info),
	verify.NewCheck("K12", checkReached,
		"the Service has no endpoints at the port that the APIServices name; as a warning, certgen cannot reach an "+
			"endpoint, and did not check it",
		"compare the ports of APIService, Service and pods; connect through kube-apiserver with --port-forward, "+
			"name reachable addresses with --endpoint, or run certgen where it can reach pods", verify.Error, verify.Warning),
	{Rule: verify.AllowedName, Find: checkProxyName},
	verify.NewCheck("P02", checkAllowedNames,
		"--requestheader-allowed-names is empty, so every certificate of the front proxy's CA can impersonate any "+
			"user; an error if that CA signs users too",
		"set it on every kube-apiserver: --requestheader-allowed-names=front-proxy-client", verify.Error,
		verify.Warning),
	verify.NewCheck("P03", checkTrustOverlap,
		"users and the front proxy share a CA (same certificate or key, or one signed the other), so any user with "+
			"a certificate can impersonate any other; a warning if only the subjects are the same",
		"issue a CA for the front proxy only: certgen init --with front-proxy --client-ca FILE", verify.Error,
		verify.Warning),
	verify.NewCheck("P04", checkTrustConfigMap,
		"the ConfigMap "+frontproxy.ConfigMapName+" is missing, or CAs, names or headers in it are missing or "+
			"malformed, so API servers reject front-proxy identities",
		"set --requestheader-client-ca-file on every kube-apiserver; repair the ConfigMap in place, never delete it"),
	verify.NewCheck("P11", checkProbes,
		"an endpoint does not accept the front proxy's certificate; as a warning, the probe was inconclusive",
		"compare the certificate with the CAs and allowed names in the ConfigMap, and let the server read the ConfigMap",
		verify.Error, verify.Warning),
}

// Rules returns the rules of the checks of a running cluster, without those shared with the
// checks of files, in the order of their IDs.
func Rules() []verify.Rule {
	return slices.DeleteFunc(verify.RulesOf(checks), func(r verify.Rule) bool { return r.ID == verify.AllowedName.ID })
}
