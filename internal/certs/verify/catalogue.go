// SPDX-License-Identifier: Apache-2.0

package verify

// Renew describes how to renew a certificate in a file.
const Renew = "certgen init, or certgen konnectivity kubeconfig for the certificate of a kubeconfig"

// checks contains all checks of files. C01 to C14 check a certificate, and F01 to F04 check a
// file.
var checks = []Check[*target]{
	NewCheck("C01", certified(checkChain),
		"the certificate's peers refuse it, because no trusted CA signed it",
		"give the peers the CA that signed it (ca.crt), or let a CA that they trust sign it: certgen init",
		Error, Info),
	NewCheck("C02", certified(checkUsage),
		"the certificate or its CA lacks the extended key usage: serverAuth for servers, clientAuth for clients",
		"issue it again with this extended key usage: certgen init"),
	NewCheck("C03", certified(checkBothUsages),
		"the certificate is valid for servers and for clients, so a stolen server key also works for a client",
		"issue one certificate for each use: certgen init", Warning),
	NewCheck("C04", certified(checkServerName),
		"a serving certificate lacks the DNS name <service>.<namespace>.svc, the only one that kube-aggregator verifies",
		"issue it again with the name: certgen init --service NAME --namespace NAMESPACE --dir DIR", Error, Info),
	NewCheck("C05", certified(checkUnusualNames),
		"the certificate contains a name that no TLS client verifies: a URI, an email address, a port, an empty name",
		"issue it again with host names and IP addresses only: certgen init --dns NAME --ip ADDRESS", Warning),
	NewCheck("C06", certified(checkKeyMatches),
		"the private key does not match the certificate; servers refuse to load them",
		"restore the matching key, or issue both again: certgen init"),
	NewCheck("C07", certified(checkValidity),
		"expired, not yet valid, or due for renewal: less than 30 days and less than a third of the lifetime are left",
		"renew it: "+Renew, Error, Warning),
	NewCheck("C08", certified(checkOutlivesCA),
		"the certificate outlives its CA; clients refuse it when the CA expires",
		"rotate the CA before it expires; certgen init issues no certificate that outlives its CA", Warning),
	NewCheck("C09", certified(checkKeyStrength),
		"weak key (RSA below 2048 bits, ECDSA below 256 bits), or a key type that some implementations refuse "+
			"(Ed25519)",
		"issue it again with an ECDSA P-256 key: certgen init", Error, Warning),
	NewCheck("C10", certified(checkSignatureAlgorithm),
		"signed with SHA-1 or MD5, which Go refuses; a warning for a root CA, whose signature is not verified",
		"issue it again with SHA-256: certgen init", Error, Warning),
	NewCheck("C11", certified(checkLeafIsCA),
		"a server or client certificate has CA:TRUE, so its key can sign certificates for any name",
		"issue it again without CA:TRUE: certgen init"),
	NewCheck("C12", certified(checkAuthority),
		"a CA lacks CA:TRUE or the key usage keyCertSign, so clients refuse every certificate that it signed",
		"issue the CA and its certificates again: certgen init --allow-new-ca"),
	NewCheck("C13", certified(checkPathLength),
		"the chain has more intermediate CAs than the root CA's path length allows",
		"let the root CA sign the certificate directly, or create a root CA with a greater path length"),
	NewCheck("C14", certified(checkNameConstraints),
		"the CA's name constraints forbid a name of the certificate; as info, a serving CA has no name "+
			"constraints and can sign for any host",
		"remove the name, or issue a CA that permits it: certgen init --allow-new-ca", Error, Info),
	NewCheck("F01", checkKeyMode,
		"users other than the owner can read or change a private key; a warning if only the group can read it",
		"chmod 600 FILE", Error, Warning),
	NewCheck("F02", checkReadable,
		"a file is missing, or certgen cannot read it",
		"restore the file, or let certgen's user read it"),
	NewCheck("F03", checkAtomicLayout,
		"certificate and key are plain files, so a server that reloads them can read a new one with an old one",
		"let certgen renew them, which replaces them with links, or mount them from a Secret; both change them in "+
			"one step", Info),
	NewCheck("F04", checkPEM,
		"not plain PEM that all readers accept: damaged, encrypted or foreign blocks, CRLF, text after the last block",
		"rewrite the file with PEM blocks CERTIFICATE or PRIVATE KEY only, and LF line endings", Error, Warning),
	{AllowedName, certified(checkAllowedName)},
}

// AllowedName is the rule about the front proxy's common name. For files, a flag provides the
// allowed names; in a running cluster, its ConfigMap does. Both checks share the rule, so that
// an ID has one meaning.
var AllowedName = Rule{"P01", []Severity{Error},
	"the front proxy's common name is not in --requestheader-allowed-names, so API servers reject its requests",
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
