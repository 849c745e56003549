// SPDX-License-Identifier: Apache-2.0

package certs

import "testing"

// TestCfsslTraps shows that surprising behaviour of cfssl v1.6.5 cannot affect the certificates
// that this package issues.
func TestCfsslTraps(t *testing.T) {
	for _, trap := range []struct {
		name string
		test func(*testing.T)
	}{
		{name: "an unknown profile is the default profile", test: anyProfileIsOurs},
		{name: "unknown usages are ignored", test: unknownUsageIsRefused},
		{name: "a policy without a default expiry is invalid", test: policyIsValid},
		{name: "times as text are read only from files", test: timesAreExact},
		{name: "the life of a CA comes from its request", test: lifeOfCAIsTheOptions},
		{name: "a renewed CA loses extensions and its key identifier", test: renewedCAIsANewOne},
		{name: "an updated CA keeps its serial", test: renewedCAIsANewOne},
		{name: "the kind of a name is guessed", test: guessedNameIsCaught},
		{name: "names of the request count unless there are others", test: requestBringsOnlyItsKey},
		{name: "extensions are copied from the request", test: requestBringsOnlyItsKey},
		{name: "a profile for CAs makes any request a CA", test: policyIsForOneKind},
		{name: "a leaf named like its CA has no issuer identifier", test: leafNamedLikeItsCAIsCaught},
		{name: "Ed25519 keys have a block type of their own", test: keysAreEncodedAlike},
		{name: "certinfo leaves out URIs and email addresses", test: descriptionIsComplete},
		{name: "the linter fails without profiles", test: policyIsValid},
		{name: "each signature is logged to standard error", test: signerLogsNothing},
		{name: "a signer without a CA keeps what it signed", test: rootsAtOnce},
	} {
		t.Run(trap.name, trap.test)
	}
}
