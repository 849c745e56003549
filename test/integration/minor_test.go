// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/extension-apiserver/pkg/envtest"
)

// olderMinor reports whether the control plane does not serve MutatingAdmissionPolicy as v1,
// which Kubernetes serves since 1.36 (KEP-3962).
func olderMinor() bool { return envtest.Minor() < "1.36" }

// TestOlderMinorVersion checks that a feature that the control plane lacks is disabled and logged
// once, and that objects can be written without it.
func TestOlderMinorVersion(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(shared.Dir, "logs", "extension-apiserver.log"))
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(data)) {
		if strings.Contains(line, "The cluster does not serve required APIs") {
			lines = append(lines, line)
		}
	}
	want := 0
	if olderMinor() {
		want = 1
	}
	if len(lines) != want || want > 0 && !strings.Contains(lines[0],
		`part="MutatingAdmissionPolicy" apis=["admissionregistration.k8s.io/v1, Resource=mutatingadmissionpolicies"`) {
		t.Errorf("Kubernetes %s: got %q, want %d lines", envtest.Minor(), lines, want)
	}
	if _, err := gadgetCase.client(t, shared.Admin(t), "").Create(t.Context(), gadgetCase.object(t, "older-minor"),
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Error(err)
	}
	direct(t, shared).Get(t, "/readyz", nil) // fails unless it is 200
}
