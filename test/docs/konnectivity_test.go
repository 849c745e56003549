// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/scripttest"
)

// TestKonnectivityDoc makes certificates as konnectivity/README.md does, and runs the commands of docs/konnectivity.md for other CAs on
// them: each side gets a bundle of the old CA and the new one, which certgen verify accepts.
func TestKonnectivityDoc(t *testing.T) {
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", filepath.Join(root, "bin")+":"+os.Getenv("PATH"))
	install := blocks(t, "konnectivity/README.md")
	bundles := blocks(t, "docs/konnectivity.md")
	first, _, found := strings.Cut(install[0], "install -d")
	if !found || !strings.HasPrefix(first, "certgen init ") || len(bundles) != 1 {
		t.Fatalf("got the commands\n%s\nand %d blocks in docs/konnectivity.md, want certgen init before the first directory, and one block", install[0], len(bundles))
	}
	dir := t.TempDir()
	scripttest.Shell(t, dir, first)
	scripttest.Shell(t, dir, bundles[0])
	for _, pair := range []string{
		certs.KonnectivityServerDir, certs.KonnectivityAPIServerClientDir, certs.KonnectivityAgentServerDir, certs.KonnectivityAgentDir,
	} {
		var want []byte
		for _, pki := range []string{"pki", "pki-new"} {
			ca, err := os.ReadFile(filepath.Join(dir, pki, pair, certs.BundleFile))
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, ca...)
		}
		both := filepath.Join(dir, "pki-both", pair, certs.BundleFile)
		if got, err := os.ReadFile(both); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %v, got\n%s\nwant both CAs\n%s", both, err, got, want)
		}
		// As on a host, with the leaf of either CA.
		for _, pki := range []string{"pki", "pki-new"} {
			scripttest.Shell(t, dir, "cp pki-both/"+pair+"/ca.crt "+pki+"/"+pair+"/ca.crt")
		}
	}
	scripttest.Shell(t, dir, "certgen verify pki && certgen verify pki-new")
}
