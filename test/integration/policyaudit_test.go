// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/rest"

	"example.com/extension-apiserver/pkg/envtest"
)

// warnings collects what the server warns of.
type warnings struct {
	mu  sync.Mutex
	got []string
}

func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.got = append(w.got, text)
}

// warned returns a configuration whose warnings are collected.
func warned(config *rest.Config) (*rest.Config, *warnings) {
	config, collected := rest.CopyConfig(config), &warnings{}
	config.WarningHandler = collected
	return config, collected
}

// TestEnginePolicyActions: a policy that only warns, or only leaves a note in the audit log, lets the request pass. The notes
// are in the log of our server, which is where the policy is evaluated.
func TestEnginePolicyActions(t *testing.T) {
	dir := t.TempDir()
	rules, log := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	if err := os.WriteFile(rules, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	e := envtest.New(t, envtest.Options{ServerArgs: []string{"--audit-policy-file=" + rules, "--audit-log-path=" + log}})
	namespace := newNamespace(t, e)
	for name, actions := range map[string][]admissionregistrationv1.ValidationAction{
		"warn": {admissionregistrationv1.Warn}, "audit": {admissionregistrationv1.Audit}, "both": {admissionregistrationv1.Warn, admissionregistrationv1.Audit},
	} {
		policy := check("object.spec.grade != 'Standard'", "think again")
		policy.MatchConstraints = inCase(namespace, name, rule("engines", onCreate))
		policy.AuditAnnotations = []admissionregistrationv1.AuditAnnotation{{Key: "grade", ValueExpression: "'grade ' + object.spec.grade"}}
		validating{name: name, policy: policy, binding: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{ValidationActions: actions}}.apply(t, e)
	}
	waitForPolicies(t, e, namespace)
	for _, tc := range []struct {
		label, grade string
		warnings     []string
		annotations  map[string]string
	}{
		{"warn", "Standard", []string{"Validation failed for ValidatingAdmissionPolicy 'warn' with binding 'warn': think again"},
			map[string]string{"warn/grade": "grade Standard"}},
		{"audit", "Standard", nil, map[string]string{"audit/grade": "grade Standard", failureKey: failure("audit", `["Audit"]`)}},
		{"both", "Standard", []string{"Validation failed for ValidatingAdmissionPolicy 'both' with binding 'both': think again"},
			map[string]string{"both/grade": "grade Standard", failureKey: failure("both", `["Warn","Audit"]`)}},
		{"both", "Premium", nil, map[string]string{"both/grade": "grade Premium"}},
	} {
		t.Run(tc.label+" "+tc.grade, func(t *testing.T) {
			name := strings.ToLower(tc.label + "-" + tc.grade)
			config, got := warned(adminConfig(t, e))
			engines := labelled{engineCase.client(t, config, namespace), engineCase, tc.label, t.Context(), t}
			if _, err := engines.create(name, map[string]any{"grade": tc.grade}); err != nil {
				t.Fatalf("create: %v, want it to pass", err)
			}
			if diff := cmp.Diff(tc.warnings, got.got); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
			var event auditv1.Event
			e.Eventually(t, "the event in the audit log", patience, func(context.Context) (err error) {
				event, err = eventOf(log, namespace, name)
				return err
			})
			// Those of the authorization are there too.
			for key := range event.Annotations {
				if strings.HasPrefix(key, "authorization.k8s.io/") {
					delete(event.Annotations, key)
				}
			}
			if diff := cmp.Diff(tc.annotations, event.Annotations); diff != "" || event.User.Username != "admin" {
				t.Errorf("event of %s, want admin; annotations (-want +got):\n%s", event.User.Username, diff)
			}
		})
	}
}

const failureKey = "validation.policy.admission.k8s.io/validation_failure"

func failure(policy, actions string) string {
	return fmt.Sprintf(`[{"message":"think again","policy":%[1]q,"binding":%[1]q,"expressionIndex":0,"validationActions":%s}]`, policy, actions)
}

// eventOf finds the event of a create in an audit log.
func eventOf(log, namespace, name string) (auditv1.Event, error) {
	data, err := os.ReadFile(log)
	if err != nil {
		return auditv1.Event{}, err
	}
	for line := range strings.Lines(string(data)) {
		var event auditv1.Event
		if err := json.Unmarshal([]byte(line), &event); err != nil {
			return event, fmt.Errorf("decode %s: %w", line, err)
		}
		if ref := event.ObjectRef; event.Verb == "create" && event.Stage == auditv1.StageResponseComplete && ref != nil && ref.Namespace == namespace && ref.Name == name {
			return event, nil
		}
	}
	return auditv1.Event{}, fmt.Errorf("no event of the create of %s/%s in:\n%s", namespace, name, data)
}
