// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.com/extension-apiserver/internal/scripttest"
)

// blocks returns the ```sh blocks of a Markdown file of the tree.
func blocks(t *testing.T, path string) []string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", path))
	if err != nil {
		t.Fatal(err)
	}
	return scripttest.Blocks(string(data))
}

// TestCertificatesDoc runs the commands of docs/operate/certificates.md.
func TestCertificatesDoc(t *testing.T) {
	dir := scripttest.CopyTree(t, filepath.Join("..", ".."))
	scripttest.Shell(t, dir, "make build")
	for _, block := range blocks(t, "docs/operate/certificates.md") {
		if out := scripttest.Shell(t, dir, block); !strings.Contains(out, "extension-apiserver.workshop-system.svc") {
			t.Errorf("no certificate for the Service in:\n%s", out)
		}
	}
}
