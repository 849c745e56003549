// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.com/extension-apiserver/internal/rotation"
)

// TestRotationsDoc: docs/certificates.md tells each procedure in the words of certgen rotate NAME --plan.
func TestRotationsDoc(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join("..", "..", "docs", "certificates.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range rotation.Rotations() {
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), []string{"rotate", name, "--plan"}, environment{&stdout, &stderr, time.Now}); code != 0 {
			t.Fatalf("exit code %d: %s", code, &stderr)
		}
		if !strings.Contains(string(doc), "### "+name+"\n\n```\n"+stdout.String()+"```\n") {
			t.Errorf("docs/certificates.md does not hold the plan of %s; below its heading it must be:\n%s", name, &stdout)
		}
	}
}
