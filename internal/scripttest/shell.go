// SPDX-License-Identifier: Apache-2.0

package scripttest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// Shell runs commands as a person pastes them, but stops at the first that fails, which fails the test. It returns what they
// print.
func Shell(t *testing.T, dir, commands string, environment ...string) string {
	t.Helper()
	began := time.Now()
	// Not the test's own context: cleanups run commands too.
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "bash", "-euo", "pipefail", "-c", commands)
	cmd.Dir = dir
	cmd.Env = append(append(os.Environ(), "CGO_ENABLED=0"), environment...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", commands, err, out)
	}
	if took := time.Since(began); took > time.Second {
		t.Logf("%s: %.0fs", commands, took.Seconds())
	}
	return string(out)
}

// Write makes a file, and the directory that it is in.
func Write(t *testing.T, path, data string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
}
