// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What in cfssl v1.6.5 does something else than one expects, each with the test that it cannot happen to us. by names a
// test that shows it anyway.
func TestCfsslTraps(t *testing.T) {
	for _, trap := range []struct {
		name string
		test func(*testing.T)
		by   string
	}{
		{name: "an unknown profile is the default profile", test: anyProfileIsOurs},
		{name: "unknown usages are ignored", test: unknownUsageIsRefused},
		{name: "a policy without a default expiry is invalid", test: policyIsValid},
		{name: "times as text are read only from files", test: timesAreExact},
		{name: "the default policy is for servers and clients", by: "TestProfiles"},
		{name: "the life of a CA comes from its request", test: lifeOfCAIsTheOptions},
		{name: "initca ignores the backdating", by: "TestProfiles"},
		{name: "a renewed CA loses extensions and its key identifier", test: renewedCAIsANewOne},
		{name: "an updated CA keeps its serial", test: renewedCAIsANewOne},
		{name: "a leaf outlives its CA", by: "TestLeafEndsWithItsCA"},
		{name: "the kind of a name is guessed", test: guessedNameIsCaught},
		{name: "a certificate without names is a warning", by: "TestServingOptions"},
		{name: "names of the request count unless there are others", test: requestBringsOnlyItsKey},
		{name: "no profile knows name constraints", by: "TestCriticalExtensions"},
		{name: "extensions are copied from the request", test: requestBringsOnlyItsKey},
		{name: "a profile for CAs makes any request a CA", test: policyIsForOneKind},
		{name: "a leaf named like its CA has no issuer identifier", test: leafNamedLikeItsCAIsCaught},
		{name: "Ed25519 keys have a block type of their own", test: keysAreEncodedAlike},
		{name: "parsers ignore block types or fail on bundles", by: "TestParseBundle"},
		{name: "bundles are completed over the network", test: importsOfCfssl},
		{name: "certinfo leaves out URIs and email addresses", test: descriptionIsComplete},
		{name: "the linter fails without profiles", test: policyIsValid},
		{name: "each signature is logged to standard error", test: signerIsSilent},
		{name: "a signer without a CA keeps what it signed", test: rootsAtOnce},
		{name: "cfssljson writes files one by one, with mode 0664", by: "TestWritePair"},
		{name: "cfssl is all over the program", test: importsOfCfssl},
	} {
		t.Run(trap.name, func(t *testing.T) {
			if trap.test != nil {
				trap.test(t)
			} else if !testExists(t, trap.by) {
				t.Errorf("%s is to show this: got no such test", trap.by)
			}
		})
	}
}

func testExists(t *testing.T, name string) bool {
	t.Helper()
	for path, text := range sources(t) {
		if strings.HasSuffix(path, "_test.go") && strings.Contains(text, "func "+name+"(t *testing.T)") {
			return true
		}
	}
	return false
}

// sources are the files of this package.
func sources(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob("*.go")
	if err != nil || len(paths) == 0 {
		t.Fatalf("found the sources %q, %v", paths, err)
	}
	out := map[string]string{}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		out[path] = string(data)
	}
	return out
}

// Two files import cfssl, and of it only what signs, here or elsewhere: not initca, whose renewal is wrong, and not bundler and certinfo, which go
// to the network.
func importsOfCfssl(t *testing.T) {
	const prefix = `"github.com/cloudflare/cfssl/`
	allowed := map[string][]string{"cfssl.go": {"config", "csr", "log", "signer", "signer/local"}, "remote.go": {"api/client"}}
	for path, text := range sources(t) {
		for line := range strings.Lines(text) {
			_, name, found := strings.Cut(strings.TrimSuffix(strings.TrimSpace(line), `"`), prefix)
			if found && !strings.HasSuffix(path, "_test.go") && !slices.Contains(allowed[path], name) {
				t.Errorf("%s imports cfssl/%s", path, name)
			}
		}
	}
}
