// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestRejectUnusableAssets checks that build rejects an unusable KUBEBUILDER_ASSETS before it
// compiles anything.
func TestRejectUnusableAssets(t *testing.T) {
	t.Setenv("KUBEBUILDER_ASSETS", t.TempDir())
	err := build(t.Context(), filepath.Join(t.TempDir(), "run"), "./nowhere")
	if err == nil || !strings.Contains(err.Error(), "it has no kube-apiserver") {
		t.Errorf("got %v, want what KUBEBUILDER_ASSETS lacks", err)
	}
}

// TestFirstRun checks that the first message says what happens and how long it takes on this
// machine.
func TestFirstRun(t *testing.T) {
	for _, tc := range []struct {
		cpus  int
		given bool
		want  []string
	}{
		{1, false, []string{"with 1 CPUs", "11 to 18 minutes", "downloads 0.7 GB", "etcd, kube-apiserver and kubectl",
			"kube-controller-manager is built"}},
		{2, false, []string{"with 2 CPUs", "6 to 10 minutes"}},
		{8, false, []string{"2 to 4 minutes"}},
		{2, true, []string{"compiling the server takes about 3 minutes", "If kube-controller-manager is missing, it is built"}},
	} {
		got := firstRun(tc.cpus, tc.given)
		for _, want := range tc.want {
			if !strings.Contains(got, want) {
				t.Errorf("with %d CPUs, programs given: %v: got %q, want %q in it", tc.cpus, tc.given, got, want)
			}
		}
	}
}

// TestFirstRunWithoutNetwork checks that the command itself needs no module, so that it can
// report missing downloads.
func TestFirstRunWithoutNetwork(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "go", "run", ".", "build", filepath.Join(t.TempDir(), "local-up"),
		"../local-up")
	cmd.Env = append(os.Environ(), "GOMODCACHE="+t.TempDir(), "GOPROXY=off")
	out, err := cmd.CombinedOutput()
	for _, want := range []string{"First run with ", "setup-envtest: go build ../local-up", "GOPROXY=off",
		"the build needs the Go module proxy once"} {
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("got %v and\n%s\nwant %q", err, out, want)
		}
	}
}
