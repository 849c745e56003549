// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestGivenBinariesFirst: a wrong KUBEBUILDER_ASSETS is told before anything is compiled.
func TestGivenBinariesFirst(t *testing.T) {
	t.Setenv("KUBEBUILDER_ASSETS", t.TempDir())
	err := build(t.Context(), filepath.Join(t.TempDir(), "run"), "./nowhere")
	if err == nil || !strings.Contains(err.Error(), "it has no kube-apiserver") {
		t.Errorf("got %v, want what KUBEBUILDER_ASSETS lacks", err)
	}
}
