// SPDX-License-Identifier: Apache-2.0

package direct

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.com/extension-apiserver/pkg/envtest"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// auditArgs returns flags that make the server log all requests, and the path of the audit log.
func auditArgs(t *testing.T) (args []string, log string) {
	t.Helper()
	policy, log := filepath.Join(t.TempDir(), "policy.yaml"), filepath.Join(t.TempDir(), "audit.log")
	if err := os.WriteFile(policy,
		[]byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: RequestResponse}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"--audit-policy-file=" + policy, "--audit-log-path=" + log}, log
}

// auditOf waits for the last audit event of a request.
func auditOf(t *testing.T, log, id string) auditv1.Event {
	t.Helper()
	var found auditv1.Event
	shared.Eventually(t, "the audit event "+id, envtest.WaitTimeout, func(context.Context) error {
		file, err := os.Open(log)
		if err != nil {
			return err
		}
		defer file.Close()
		for lines := bufio.NewScanner(file); lines.Scan(); {
			var event auditv1.Event
			if json.Unmarshal(lines.Bytes(), &event) == nil && string(event.AuditID) == id &&
				event.Stage == auditv1.StageResponseComplete {
				found = event
				return nil
			}
		}
		return fmt.Errorf("it is not in %s", log)
	})
	return found
}

// TestS19Impersonation checks that impersonation needs the permission of the requesting user. At
// its own port the server must check it, because kube-apiserver is not involved.
func TestS19Impersonation(t *testing.T) {
	t.Parallel()
	args, log := auditArgs(t)
	s := newServer(t, args...)
	users := readCA(t, "client-ca")
	asBoss := http.Header{"Impersonate-User": {"boss"}}

	// Constrained impersonation (KEP-5284) is checked first.
	alice := issue(t, users, "alice")
	s.get(t, alice, asBoss).want(t, "without the permission", http.StatusForbidden)
	var reviewed []string
	for _, spec := range s.access(t) {
		reviewed = append(reviewed, spec.User+": "+attributesLine(spec))
	}
	if diff := cmp.Diff([]string{
		"alice: impersonate-on:user-info:list workshop.example.com/v1 gadgets ",
		"alice: impersonate /v1 users boss",
	}, reviewed); diff != "" {
		t.Errorf("SubjectAccessReviews (-want +got):\n%s", diff)
	}

	deputies := []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: "deputy"}}
	if err := grant("direct-deputy", deputies, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"users"},
		Verbs: []string{"impersonate"}}); err != nil {
		t.Fatal(err)
	}
	deputy := issue(t, users, "deputy")
	got := s.get(t, deputy, asBoss)
	got.want(t, "with the permission", http.StatusOK)
	event := auditOf(t, log, got.header.Get("Audit-Id"))
	if event.User.Username != "deputy" || event.ImpersonatedUser == nil || event.ImpersonatedUser.Username != "boss" {
		t.Errorf("audit event: by %s as %+v, want by deputy as boss", event.User.Username, event.ImpersonatedUser)
	}
	// Users only: neither groups nor system accounts.
	for name, header := range map[string]http.Header{
		"a group too": {"Impersonate-User": {"boss"}, "Impersonate-Group": {"system:masters"}},
		"a UID too":   {"Impersonate-User": {"boss"}, "Impersonate-Uid": {"1"}},
		"extra too":   {"Impersonate-User": {"boss"}, "Impersonate-Extra-Scope": {"all"}},
		"an account":  {"Impersonate-User": {account}},
	} {
		s.get(t, deputy, header).want(t, name, http.StatusForbidden)
	}
	// The permission is that of the user whom the front proxy reports.
	proxy := frontProxy(t)
	for user, want := range map[string]int{"ann": http.StatusForbidden, "deputy": http.StatusOK} {
		s.get(t, proxy, http.Header{"X-Remote-User": {user}, "Impersonate-User": {"boss"}}).want(t,
			"the front proxy for "+user, want)
	}
}

// TestS19ImpersonateWithoutUser checks that groups and other attributes without a user are
// rejected, and not added to the requesting user.
func TestS19ImpersonateWithoutUser(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	admin := issue(t, readCA(t, "client-ca"), "admin", "system:masters")
	for name, header := range map[string]http.Header{
		"group":      {"Impersonate-Group": {"bosses"}},
		"UID":        {"Impersonate-Uid": {"1"}},
		"extra":      {"Impersonate-Extra-Scope": {"all"}},
		"empty user": {"Impersonate-User": {""}, "Impersonate-Group": {"bosses"}},
	} {
		s.get(t, admin, header).want(t, name, http.StatusBadRequest)
	}
	s.get(t, admin, http.Header{"Impersonate-User": {"boss"}}).want(t, "a user", http.StatusOK)
	s.get(t, admin, http.Header{"Impersonate-User": {"nobody"}}).want(t, "an unprivileged user", http.StatusForbidden)
	s.get(t, nil, http.Header{"Impersonate-User": {"boss"}}).want(t, "without credentials", http.StatusUnauthorized)
}

// TestS19ConstrainedImpersonation checks that a user who may impersonate for one verb may not do
// so for another (KEP-5284).
func TestS19ConstrainedImpersonation(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	if err := grant("direct-reader", []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: "reader"}},
		rbacv1.PolicyRule{APIGroups: []string{"workshop.example.com"}, Resources: []string{"gadgets"},
			Verbs: []string{"impersonate-on:user-info:list"}},
		rbacv1.PolicyRule{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"users"},
			Verbs: []string{"impersonate:user-info"}, ResourceNames: []string{"boss"}},
	); err != nil {
		t.Fatal(err)
	}
	reader, asBoss := issue(t, readCA(t, "client-ca"), "reader"), http.Header{"Impersonate-User": {"boss"}}
	s.get(t, reader, asBoss).want(t, "list", http.StatusOK)
	s.get(t, reader, http.Header{"Impersonate-User": {"admin"}}).want(t, "list as another", http.StatusForbidden)
	body := `{"apiVersion":"workshop.example.com/v1","kind":"Gadget","metadata":{"name":"constrained"}}`
	s.try(reader, http.MethodPost, protected, asBoss, body).want(t, "create", http.StatusForbidden)
	s.try(reader, http.MethodGet, protected+"/constrained", asBoss, "").want(t, "get", http.StatusForbidden)
}

func attributesLine(spec authorizationv1.SubjectAccessReviewSpec) string {
	if a := spec.ResourceAttributes; a != nil {
		return strings.Join([]string{a.Verb, a.Group + "/" + a.Version, a.Resource, a.Name}, " ")
	}
	return spec.NonResourceAttributes.Verb + " " + spec.NonResourceAttributes.Path
}
