// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"

	"example.com/extension-apiserver/internal/scripttest"
	"example.com/extension-apiserver/pkg/conformance"
	"example.com/extension-apiserver/pkg/envtest"
)

// TestChild checks a kind whose objects need an existing object, which the server makes their owner,
// and whose writes need a permission beyond the verb of the request.
func TestChild(t *testing.T) {
	e := envtest.New(t, envtest.Options{Server: "example.com/extension-apiserver/test/conformance/childserver",
		ServerPermissions: []rbacv1.PolicyRule{rule("", "configmaps", "get")}})
	target := one(t, nil, "widgets.v1.workshop.example.com")
	complete(t, e, &target, nil, auditLogs{})
	dir := t.TempDir()
	scripttest.Write(t, filepath.Join(dir, "1-parent.yaml"),
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: parent}\n")
	scripttest.Write(t, filepath.Join(dir, "2-sibling.yaml"), "apiVersion: workshop.example.com/v1\nkind: Widget\n"+
		"metadata: {name: sibling}\nspec: {model: pendulum}\n")
	var err error
	if target.Prepare, err = conformance.PrepareFrom(dir); err != nil {
		t.Fatal(err)
	}

	t.Run("without permission", func(t *testing.T) {
		target := target
		target.Only = []string{"webhooks/user", "action/authorization", "authorization/apply-creates"}
		target.CheckTimeout = 5 * time.Minute
		for _, result := range execute(t, target).Results {
			const want = "the user needs the permission to approve widgets.workshop.example.com: set Target.Permissions"
			if message := strings.Join(result.Messages, "; "); result.Outcome != conformance.Failed ||
				!strings.Contains(message, want) {
				t.Errorf("%s: %s %q, want it failed: %s", result.ID, result.Outcome, message, want)
			}
		}
	})
	t.Run("permission of a request", func(t *testing.T) {
		target := target
		target.Permissions = []rbacv1.PolicyRule{rule("workshop.example.com", "*", "approve", "list")}
		_, err := conformance.Execute(t.Context(), target)
		if want := "the permissions include list widgets.workshop.example.com"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got the error %v, want %q", err, want)
		}
	})
	t.Run("all checks", func(t *testing.T) {
		target := target
		target.Permissions = []rbacv1.PolicyRule{rule("workshop.example.com", "widgets", "approve")}
		report := execute(t, target)
		asExpected(t, report, target.Resource, expectations(t, "expected.yaml"))
		for _, result := range report.Results {
			switch id := result.ID; {
			case id == "delete/foreground-waits":
				if message := strings.Join(result.Messages, "; "); result.Outcome != conformance.Skipped ||
					!strings.Contains(message, "the server adds an owner reference") {
					t.Errorf("%s: %s %q, want it skipped for the added owner", id, result.Outcome, message)
				}
			case result.Outcome == conformance.Skipped && !slices.Contains([]string{"existing", "audit", "review"},
				strings.Split(id, "/")[0]):
				t.Errorf("%s is skipped: %s", id, strings.Join(result.Messages, "; "))
			}
		}
	})
}

func execute(t *testing.T, target conformance.Target) *conformance.Report {
	t.Helper()
	report, err := conformance.Execute(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func rule(group, resource string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
}
