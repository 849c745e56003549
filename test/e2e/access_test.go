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

// forwarder creates a user with only the permissions that docs/operate/access.md requires for a
// port-forward.
const forwarder = `kubectl apply --filename - <<END
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: forwarder, namespace: workshop-system}
rules:
- {apiGroups: [""], resources: [services, pods], verbs: [get]}
- {apiGroups: [""], resources: [pods], verbs: [list]}
- {apiGroups: [""], resources: [pods/portforward], verbs: [create]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: forwarder, namespace: workshop-system}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: forwarder}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: forwarder}]
END`

// TestAccess runs the commands of docs/operate/access.md that need pods. A user with the
// permissions that the page lists forwards a port to the server's own port, and sends the token of
// a ServiceAccount. curl verifies the certificate with the CA of the APIService.
func TestAccess(t *testing.T) {
	p := newPage(newCluster(t), "docs/operate/access.md").section("Through a port-forward")
	commands := p.commands(3)
	t.Cleanup(func() {
		p.run(commands[2])
		p.run("kubectl delete --namespace workshop-system role,rolebinding forwarder")
	})
	p.run(commands[0])
	p.run(forwarder)
	p.awaitPermission("forwarder", authorizationv1.SubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Resource: "pods",
			Subresource: "portforward", Verb: "create"},
	})
	p.awaitPermission("system:serviceaccount:default:caller", authorizationv1.SubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Group: widgets.Group, Version: widgets.Version,
			Resource: widgets.Resource, Verb: "list"},
	})
	p.runForCodes(strings.NewReplacer("8443", freePort(p.cluster), "kubectl port-forward",
		"kubectl port-forward --as forwarder").Replace(commands[1]))
	// The last command writes this file.
	response, err := os.ReadFile(filepath.Join(p.dir, "answer.json"))
	if err != nil || !strings.Contains(string(response), `"WidgetList"`) {
		t.Errorf("got %q, %v, want a WidgetList", response, err)
	}
}
