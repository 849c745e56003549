// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/pkg/envtest"
)

// curled checks that the curl command of docs/konnectivity/troubleshooting.md, which verifies
// every certificate, reaches the server through the tunnel.
func curled(t *testing.T, e *envtest.Environment) {
	t.Helper()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Fatal("curl is not installed; scripts/needs.sh test installs it")
	}
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "konnectivity", "troubleshooting.md"))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("`(curl -p [^`]*)`").FindSubmatch(page)
	if found == nil {
		t.Fatal("docs/konnectivity/troubleshooting.md has no command curl -p")
	}
	ip := strings.TrimSuffix(clusterIP(t, e), ":443")
	words := strings.Fields(strings.ReplaceAll(string(found[1]), "<cluster IP>", ip))
	cmd := exec.CommandContext(t.Context(), words[0], append(words[1:], "--silent", "--show-error",
		"--max-time", "60")...)
	cmd.Dir = filepath.Join(e.PKI(), certs.KonnectivityAPIServerClientDir)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := e.StartCommand(cmd); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || out.String() != "ok" {
		t.Errorf("%s: %v, printed %q, want ok", cmd, err, &out)
	}
}
