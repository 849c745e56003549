// SPDX-License-Identifier: Apache-2.0

package verify

// Renew describes how to renew a certificate in a file.
const Renew = "certgen init, or for a pair beside a kubeconfig certgen konnectivity kubeconfig"

// checks contains all checks of files. C01 to C14 check a certificate, and F01 to F04 check a
// file.
var checks = []Check[*target]{
	NewCheck("C01", certified(checkChain),
		"the verifier of its peers refuses the certificate: no trusted CA signed it",
		"give the peers the CA that signed it (ca.crt), or have it signed by the CA that they trust: certgen init",
		Error, Info),
	NewCheck("C02", certified(checkUsage),
		"certificate or CA lacks the extended key usage: serverAuth for servers, clientAuth for clients",
		"issue it again with that one usage: certgen init"),
	NewCheck("C03", certified(checkBothUsages),
		"a leaf may be used as server and as client, so who steals the server's key can act as a client",
		"make one certificate for each: certgen init", Warning),
	NewCheck("C04", certified(checkServerName),
		"a serving certificate lacks the DNS name <service>.<namespace>.svc, the only one that kube-aggregator asks for",
		"issue it again with the name: certgen init --service NAME --namespace NAMESPACE --dir DIR", Error, Info),
	NewCheck("C05", certified(checkUnusualNames),
		"a name in the certificate is one that no TLS client ever asks for: a URI, an email address, a port, an "+
			"empty name",
		"issue it again with host names and IP addresses only: certgen init --dns NAME --ip ADDRESS", Warning),
	NewCheck("C06", certified(checkKeyMatches),
		"the key is not the key of the certificate; servers refuse to load the pair",
		"put back the key that belongs to the certificate, or issue both again: certgen init"),
	NewCheck("C07", certified(checkValidity),
		"expired, not yet valid, or due: less than 30 days and less than a third of its life are left",
		"renew it: "+Renew, Error, Warning),
	NewCheck("C08", certified(checkOutlivesCA),
		"the certificate outlives its CA; it will be refused earlier than it says",
		"rotate the CA before it ends; certgen init issues no leaf that ends after its CA", Warning),
	NewCheck("C09", certified(checkKeyStrength),
		"weak key (RSA below 2048 bits, ECDSA below 256 bits), or a kind of key that parts of the field refuse "+
			"(Ed25519)",
		"issue it again with an ECDSA P-256 key: certgen init", Error, Warning),
	NewCheck("C10", certified(checkSignatureAlgorithm),
		"signed with SHA-1 or MD5, which Go refuses; a warning on a root, whose signature nobody checks",
		"have it signed again with SHA-256: certgen init", Error, Warning),
	NewCheck("C11", certified(checkLeafIsCA),
		"a leaf says that it is a CA (CA:TRUE), so its key can sign certificates for any name",
		"issue it again as a leaf: certgen init"),
	NewCheck("C12", certified(checkAuthority),
		"a CA does not say that it is one (CA:TRUE with the key usage keyCertSign), so nothing that it signed is "+
			"accepted",
		"issue the CA again and have its leaves signed again: certgen init --allow-new-ca"),
	NewCheck("C13", certified(checkPathLength),
		"more CAs are between root and leaf than the root's path length allows",
		"have the leaf signed by the root itself, or make a root with a greater path length"),
	NewCheck("C14", certified(checkNameConstraints),
		"the CA's name constraints forbid a name of the certificate; as info, a serving CA has none and can vouch "+
			"for any host",
		"leave the name out, or make a CA for it: certgen init --allow-new-ca", Error, Info),
	NewCheck("F01", checkKeyMode,
		"others than its owner can read or change a private key; a warning when it is only readable by its group",
		"chmod 600 FILE", Error, Warning),
	NewCheck("F02", checkReadable,
		"a file is missing, or the user who runs certgen cannot read it",
		"put the file back, or allow reading it"),
	NewCheck("F03", checkAtomicLayout,
		"certificate and key are plain files, so a server that reloads may see one of them new and the other old",
		"have certgen write them, which links them when it renews them, or mount them from a Secret; both switch "+
			"them together", Info),
	NewCheck("F04", checkPEM,
		"not the plain PEM that all readers take: damaged, encrypted or foreign blocks, CRLF, text after the last block",
		"rewrite the file as PEM blocks CERTIFICATE or PRIVATE KEY, LF line ends and nothing else", Error, Warning),
	{AllowedName, certified(checkAllowedName)},
}

// AllowedName is the rule about the front proxy's common name. For files, a flag provides the
// allowed names; in a running cluster, its ConfigMap does. Both checks share the rule, so that
// an ID has one meaning.
var AllowedName = Rule{"P01", []Severity{Error},
	"the front proxy's common name is not among --requestheader-allowed-names, so API servers refuse whom it names",
	"issue it again with an allowed name (certgen init uses front-proxy-client), or allow its name on kube-apiserver"}

// certified wraps find to skip targets without a parseable certificate. F02 and F04 report the
// reason.
func certified(find func(*target) []Finding) func(*target) []Finding {
	return func(t *target) []Finding {
		if t.leaf == nil {
			return nil
		}
		return find(t)
	}
}

// Rules returns the rules of all checks of files, in the order of their IDs.
func Rules() []Rule { return RulesOf(checks) }
