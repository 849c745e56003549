// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// policyCase is a policy about the objects of its case, and requests that it refuses or lets pass, one after the other.
type policyCase struct {
	name   string
	rule   admissionregistrationv1.RuleWithOperations
	policy admissionregistrationv1.ValidatingAdmissionPolicySpec
	steps  []policyStep
}

type policyStep struct {
	name string
	do   func(engines, items labelled) error
	want denial
}

// creates returns a step that creates an engine.
func creates(name string, spec map[string]any, want denial) policyStep {
	return policyStep{"create " + name, func(engines, _ labelled) error { _, err := engines.create(name, spec); return err }, want}
}

// patches returns a step that changes the engine w.
func patches(patch string, want denial, subresources ...string) policyStep {
	return policyStep{"patch " + patch, func(engines, _ labelled) error { _, err := engines.patch("w", patch, subresources...); return err }, want}
}

// check returns a policy with one expression.
func check(expression, message string) admissionregistrationv1.ValidatingAdmissionPolicySpec {
	return admissionregistrationv1.ValidatingAdmissionPolicySpec{
		Validations: []admissionregistrationv1.Validation{{Expression: expression, Message: message}},
	}
}

const (
	onCreate = admissionregistrationv1.Create
	onUpdate = admissionregistrationv1.Update
	onDelete = admissionregistrationv1.Delete
)

// policyCases show that an expression sees of a request to our server what it would of one to kube-apiserver.
var policyCases = []policyCase{
	{"object-and-old", rule("engines", onUpdate), check("object.spec.replicas >= oldObject.spec.replicas", "only more"), []policyStep{
		creates("w", map[string]any{"replicas": int64(2)}, denial{}),
		patches(`{"spec":{"replicas":1}}`, denial{message: "only more"}),
		patches(`{"spec":{"replicas":3}}`, denial{}),
	}},
	// Defaults are there before policies look.
	{"defaults", rule("engines", onCreate), check("object.spec.grade != 'Standard'", "no default"), []policyStep{
		creates("w", nil, denial{message: "no default"}),
		creates("w", map[string]any{"grade": "Economy"}, denial{}),
	}},
	{"request", rule("engines", onCreate), check("request.userInfo.username != 'admin' || request.operation != 'CREATE' || "+
		"request.resource.resource != 'engines' || request.kind.kind != 'Engine' || request.name != 'w' || object.metadata.namespace != request.namespace",
		"that is the one"), []policyStep{
		creates("w", nil, denial{message: "that is the one"}),
		creates("another", nil, denial{}),
	}},
	{"namespace-and-variables", rule("engines", onCreate), admissionregistrationv1.ValidatingAdmissionPolicySpec{
		Variables:   []admissionregistrationv1.Variable{{Name: "phase", Expression: "namespaceObject.status.phase"}},
		Validations: []admissionregistrationv1.Validation{{Expression: "variables.phase != 'Active'", MessageExpression: "'the namespace is ' + variables.phase"}},
	}, []policyStep{creates("w", nil, denial{message: "the namespace is Active"})}},
	// Our server asks kube-apiserver: the garbage collector may list ConfigMaps, other accounts may not.
	{"authorizer", rule("engines", onCreate), check("authorizer.serviceAccount('kube-system', object.metadata.name)."+
		"group('').resource('configmaps').check('list').allowed()", "no right"), []policyStep{
		creates("generic-garbage-collector", nil, denial{}),
		creates("default", nil, denial{message: "no right"}),
	}},
	{"match-conditions", rule("engines", onCreate), admissionregistrationv1.ValidatingAdmissionPolicySpec{
		MatchConditions: []admissionregistrationv1.MatchCondition{{Name: "premium", Expression: "object.spec.grade == 'Premium'"}},
		Validations:     []admissionregistrationv1.Validation{{Expression: "false"}},
	}, []policyStep{
		creates("w", nil, denial{}),
		creates("v", map[string]any{"grade": "Premium"}, denial{message: "failed expression: false"}),
	}},
	{"status", rule("engines/status", onUpdate), check("object.status.replicas < 10", "too many"), []policyStep{
		creates("w", nil, denial{}),
		patches(`{"status":{"replicas":10}}`, denial{}),
		patches(`{"status":{"replicas":10}}`, denial{message: "too many"}, "status"),
		patches(`{"status":{"replicas":9}}`, denial{}, "status"),
	}},
	{"delete", rule("engines", onDelete), admissionregistrationv1.ValidatingAdmissionPolicySpec{Validations: []admissionregistrationv1.Validation{{
		Expression: "object == null && oldObject.spec.grade == 'Economy'", Message: "not cheap enough", Reason: new(metav1.StatusReasonForbidden),
	}}}, []policyStep{
		creates("w", nil, denial{}),
		{"delete", func(engines, _ labelled) error {
			return engines.client.Delete(engines.ctx, "w", metav1.DeleteOptions{})
		},
			denial{message: "not cheap enough", reason: metav1.StatusReasonForbidden}},
		patches(`{"spec":{"grade":"Economy"}}`, denial{}),
		{"delete a cheap one", func(engines, _ labelled) error {
			return engines.client.Delete(engines.ctx, "w", metav1.DeleteOptions{})
		}, denial{}},
	}},
	{"error-fails", rule("engines", onCreate), check("object.spec.nothing == 1", ""), []policyStep{
		creates("w", nil, denial{message: "expression 'object.spec.nothing == 1' resulted in error: no such key: nothing"}),
	}},
	{"error-is-ignored", rule("engines", onCreate), admissionregistrationv1.ValidatingAdmissionPolicySpec{
		FailurePolicy: new(admissionregistrationv1.Ignore),
		Validations:   []admissionregistrationv1.Validation{{Expression: "object.spec.nothing == 1"}, {Expression: "object.metadata.name != 'v'", Message: "not v"}},
	}, []policyStep{
		creates("w", nil, denial{}),
		creates("v", nil, denial{message: "not v"}),
	}},
	{"all-resources", rule("*", onCreate), check("request.dryRun == false", "of any kind"), []policyStep{
		{"engine", func(engines, _ labelled) error { _, err := engines.create("w", nil, dryRun); return err }, denial{message: "of any kind"}},
		{"item", func(_, items labelled) error { _, err := items.create("g", nil, dryRun); return err }, denial{message: "of any kind"}},
	}},
}

// TestEngineValidatingPolicy: the cluster's ValidatingAdmissionPolicies hold for our kinds.
func TestEngineValidatingPolicy(t *testing.T) {
	namespace, other := newNamespace(t, shared), newNamespace(t, shared)
	remove := map[string]func(){}
	for _, tc := range policyCases {
		tc.policy.MatchConstraints = inCase(namespace, tc.name, tc.rule)
		remove[tc.name] = validating{name: namespace + "-" + tc.name, policy: tc.policy}.apply(t, shared)
	}
	waitForPolicies(t, shared, namespace)
	for _, tc := range policyCases {
		t.Run(tc.name, func(t *testing.T) {
			engines := newLabelled(t, shared, engineCase, namespace, tc.name)
			items := newLabelled(t, shared, itemCase, "", tc.name)
			for _, step := range tc.steps {
				step.want.policy = namespace + "-" + tc.name
				if err := step.want.check(step.do(engines, items)); err != nil {
					t.Errorf("%s: %v", step.name, err)
				}
			}
			if err := engines.client.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
	// The selectors: in another namespace, or without the label, no policy looks.
	for _, client := range []labelled{
		newLabelled(t, shared, engineCase, other, "error-fails"), newLabelled(t, shared, engineCase, namespace, "none"),
	} {
		if _, err := client.create("w", nil, dryRun); err != nil {
			t.Errorf("create of an engine that no selector matches: %v", err)
		}
	}
	remove["error-fails"]()
	refused := newLabelled(t, shared, engineCase, namespace, "error-fails")
	shared.Eventually(t, "the removed policy to be out of effect", patience, func(context.Context) error {
		_, err := refused.create("w", nil, dryRun)
		return err
	})
}
