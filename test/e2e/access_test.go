// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
)

// TestAccess runs the commands of docs/access.md that need pods: a port-forward to the server's own port, with the token of a
// ServiceAccount. curl verifies the certificate with the CA of the APIService.
func TestAccess(t *testing.T) {
	p := newPage(newCluster(t), "docs/access.md").section("Through a port-forward")
	commands := p.commands(3)
	t.Cleanup(func() { p.run(commands[2]) })
	p.run(commands[0])
	p.awaitRight("system:serviceaccount:default:caller", authorizationv1.SubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Group: widgets.Group, Version: widgets.Version, Resource: widgets.Resource, Verb: "list"},
	})
	p.runForCodes(strings.ReplaceAll(commands[1], "8443", freePort(p.cluster)))
	// What the last command wrote.
	answer, err := os.ReadFile(filepath.Join(p.dir, "answer.json"))
	if err != nil || !strings.Contains(string(answer), `"WidgetList"`) {
		t.Errorf("got %q, %v, want a WidgetList", answer, err)
	}
}
