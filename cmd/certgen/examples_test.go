// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/x509"
	"strings"
	"testing"
	"time"

	"example.com/extension-apiserver/internal/certs"
)

// TestExamples checks that the examples in the help texts of the commands that write files
// succeed, run in sequence in one directory.
func TestExamples(t *testing.T) {
	t.Chdir(t.TempDir())
	users, err := certs.NewCA(certs.CAOptions{Name: "users-ca", Usage: x509.ExtKeyUsageClientAuth})
	if err != nil {
		t.Fatal(err)
	}
	if err := users.Write("users-ca", nil); err != nil {
		t.Fatal(err)
	}
	root := newCommand(environment{now: time.Now})
	for _, name := range []string{"init", "request", "request sign", "request accept", "konnectivity kubeconfig"} {
		cmd, _, err := root.Find(strings.Fields(name))
		if err != nil {
			t.Fatal(err)
		}
		ran := 0
		for line := range strings.Lines(strings.ReplaceAll(cmd.Example, "\\\n", " ")) {
			args := strings.Fields(line)
			if len(args) == 0 || args[0] == "#" {
				continue
			}
			var stdout, stderr bytes.Buffer
			if code := run(t.Context(), args[1:], environment{stdout: &stdout, stderr: &stderr,
				now: time.Now}); code != 0 || args[0] != "certgen" || stdout.Len() == 0 {
				t.Errorf("%s: got exit code %d and %s, want certgen to succeed", line, code, &stderr)
			}
			ran++
		}
		if ran == 0 {
			t.Errorf("certgen %s has no example", name)
		}
	}
}
