// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"maps"
	"testing"

	"example.com/extension-apiserver/pkg/envtest"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// mutating is a MutatingAdmissionPolicy and a binding with the same name, for the objects of a
// case.
type mutating struct {
	name, label string
	rule        admissionregistrationv1.RuleWithOperations
	// apply and jsonPatch are the expressions of an apply configuration and of a JSON patch. One
	// of them is set.
	apply, jsonPatch string
	conditions       []admissionregistrationv1.MatchCondition
	param            string
	// reinvocation is Never unless set.
	reinvocation admissionregistrationv1.ReinvocationPolicyType
}

func (m mutating) create(t *testing.T, namespace string) {
	t.Helper()
	client := shared.Client(t).AdmissionregistrationV1()
	if m.reinvocation == "" {
		m.reinvocation = admissionregistrationv1.NeverReinvocationPolicy
	}
	mutation := admissionregistrationv1.Mutation{
		PatchType:          admissionregistrationv1.PatchTypeApplyConfiguration,
		ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{Expression: m.apply},
	}
	if m.jsonPatch != "" {
		mutation = admissionregistrationv1.Mutation{
			PatchType: admissionregistrationv1.PatchTypeJSONPatch,
			JSONPatch: &admissionregistrationv1.JSONPatch{Expression: m.jsonPatch},
		}
	}
	meta := metav1.ObjectMeta{Name: namespace + "-" + m.name}
	policy := &admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: meta,
		Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
			MatchConstraints: inCase(namespace, m.label, m.rule), MatchConditions: m.conditions,
			Mutations: []admissionregistrationv1.Mutation{mutation}, ReinvocationPolicy: m.reinvocation,
		}}
	binding := &admissionregistrationv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: meta, Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: meta.Name},
	}
	if m.param != "" {
		policy.Spec.ParamKind = configMapKind
		binding.Spec.ParamRef = &admissionregistrationv1.ParamRef{Name: m.param,
			ParameterNotFoundAction: new(admissionregistrationv1.DenyAction)}
	}
	if _, err := client.MutatingAdmissionPolicies().Create(t.Context(), policy, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.MutatingAdmissionPolicyBindings().Create(t.Context(), binding,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if err := errors.Join(client.MutatingAdmissionPolicyBindings().Delete(ctx, meta.Name, metav1.DeleteOptions{}),
			client.MutatingAdmissionPolicies().Delete(ctx, meta.Name, metav1.DeleteOptions{})); err != nil {
			t.Errorf("remove policy: %v", err)
		}
	})
}

var mutatingPolicies = []mutating{
	// The policy adds labels and changes the part with that name, because the schema merges parts
	// by name.
	{name: "apply", label: "apply", rule: rule("widgets", onCreate), apply: `Object{metadata: Object.metadata{labels: {"by": "policy"}},
		spec: Object.spec{grade: "Premium", parts: [Object.spec.parts{name: "frame", material: "ash"}]}}`},
	{name: "json", label: "json", rule: rule("widgets", onCreate), jsonPatch: `[JSONPatch{op: "add", path: "/spec/parts/-", value: Object.spec.parts{name: "bolt"}},
		JSONPatch{op: "remove", path: "/spec/parts/0"}]`},
	{name: "invalid", label: "invalid", rule: rule("widgets", onCreate),
		apply: `Object{spec: Object.spec{maxReplicas: 1}}`},
	{name: "immutable", label: "immutable", rule: rule("widgets", onUpdate),
		apply: `Object{spec: Object.spec{model: "other"}}`},
	{name: "unknown", label: "unknown", rule: rule("widgets", onCreate),
		apply: `Object{spec: Object.spec{colour: "red"}}`},
	{name: "condition", label: "condition", rule: rule("widgets", onCreate),
		apply:      `Object{spec: Object.spec{grade: "Economy"}}`,
		conditions: []admissionregistrationv1.MatchCondition{{Name: "few", Expression: "object.spec.replicas < 2"}}},
	{name: "param", label: "param", rule: rule("widgets", onCreate),
		apply: `Object{spec: Object.spec{maxReplicas: int(params.data.most)}}`, param: "limit"},
	{name: "status", label: "status", rule: rule("widgets/status", onUpdate),
		apply: `Object{status: Object.status{selector: "by=policy"}}`},
	// Each policy records whether it saw the change of the other. Both can have seen it only if
	// both are invoked a second time.
	{name: "one", label: "again", rule: rule("widgets", onCreate),
		reinvocation: admissionregistrationv1.IfNeededReinvocationPolicy,
		apply:        `Object{metadata: Object.metadata{labels: {"one": "was-here", "one-saw-two": string("two" in object.metadata.labels)}}}`},
	{name: "two", label: "again", rule: rule("widgets", onCreate),
		reinvocation: admissionregistrationv1.IfNeededReinvocationPolicy,
		apply:        `Object{metadata: Object.metadata{labels: {"two": "was-here", "two-saw-one": string("one" in object.metadata.labels)}}}`},
	{name: "last", label: "last", rule: rule("widgets", onCreate),
		apply: `Object{metadata: Object.metadata{labels: {"in": "effect"}}}`},
}

// TestWidgetMutatingPolicy checks that the cluster's MutatingAdmissionPolicies change objects
// before they are defaulted and validated. The server gets the schema of its own kinds from
// kube-apiserver, which fetched it from the server.
func TestWidgetMutatingPolicy(t *testing.T) {
	if olderMinor() {
		t.Skip("TestOlderMinorVersion")
	}
	allowParams(t, shared)
	namespace := shared.NewNamespace(t)
	setParam(t, namespace, "limit", "8")
	for _, policy := range mutatingPolicies {
		policy.create(t, namespace)
	}
	create := func(t *testing.T, label string, spec map[string]any) (*unstructured.Unstructured, error) {
		t.Helper()
		return newLabelled(t, shared, widgetCase, namespace, label).create("w", spec, dryRun)
	}
	// Policies take effect each second, the schema is read every 5 s, and parameters are read
	// when they are first needed.
	shared.Eventually(t, "the policies to be in effect", envtest.WaitTimeout, func(context.Context) error {
		_, paramErr := create(t, "param", nil)
		got, err := create(t, "last", nil)
		if err == nil && got.GetLabels()["in"] != "effect" {
			err = errors.New("not yet changed")
		}
		return errors.Join(paramErr, err)
	})
	for _, tc := range []struct {
		label string
		spec  map[string]any
		// labels and fields are the expected labels and spec fields.
		labels map[string]string
		fields map[string]any
	}{
		{"apply", nil, map[string]string{"by": "policy"}, map[string]any{
			"grade": "Premium", "parts": []any{map[string]any{"name": "frame", "quantity": int64(1), "material": "ash"},
				part("screw", 12)}}},
		// The new part gets the default quantity.
		{"json", nil, nil, map[string]any{"parts": []any{part("screw", 12), part("bolt", 1)}}},
		{"condition", nil, nil, map[string]any{"grade": "Standard"}},
		{"condition", map[string]any{"replicas": int64(1)}, nil, map[string]any{"grade": "Economy"}},
		{"param", nil, nil, map[string]any{"maxReplicas": int64(8)}},
		{"again", nil, map[string]string{"one": "was-here", "two": "was-here", "one-saw-two": "true",
			"two-saw-one": "true"}, nil},
		{"none", nil, nil, map[string]any{"grade": "Standard", "maxReplicas": int64(5)}},
	} {
		t.Run(tc.label, func(t *testing.T) {
			got, err := create(t, tc.label, tc.spec)
			if err != nil {
				t.Fatal(err)
			}
			labels := map[string]string{caseLabel: tc.label}
			maps.Copy(labels, tc.labels)
			if diff := cmp.Diff(labels, got.GetLabels()); diff != "" {
				t.Errorf("labels (-want +got):\n%s", diff)
			}
			for field, want := range tc.fields {
				if diff := cmp.Diff(want, got.Object["spec"].(map[string]any)[field]); diff != "" {
					t.Errorf("spec.%s (-want +got):\n%s", field, diff)
				}
			}
		})
	}
	t.Run("invalid", func(t *testing.T) {
		_, err := create(t, "invalid", nil)
		if diff := cmp.Diff([]string{"spec.replicas"}, invalidFields(t, err)); diff != "" {
			t.Errorf("fields with errors in the policy's result (-want +got):\n%s", diff)
		}
	})
	t.Run("unknown", func(t *testing.T) {
		_, err := create(t, "unknown", nil)
		want := "policy '" + namespace + "-unknown' with binding '" + namespace +
			"-unknown' denied request: error applying patch: " +
			"failed to convert patch object to typed object: .spec.colour: field not declared in schema"
		if apierrors.ReasonForError(err) != metav1.StatusReasonInvalid || err.Error() != want {
			t.Errorf("policy that sets a field that does not exist: %v, want Invalid: %s", err, want)
		}
	})
	t.Run("updates", func(t *testing.T) { mutateUpdates(t, namespace) })
}

// mutateUpdates checks that an update that a policy changed is validated as an update, and that a
// policy for the status changes the status.
func mutateUpdates(t *testing.T, namespace string) {
	for _, label := range []string{"immutable", "status"} {
		if _, err := newLabelled(t, shared, widgetCase, namespace, label).create(label, nil); err != nil {
			t.Fatal(err)
		}
	}
	_, err := newLabelled(t, shared, widgetCase, namespace, "immutable").patch("immutable", `{"spec":{"replicas":1}}`)
	if diff := cmp.Diff([]string{"spec.model"}, invalidFields(t, err)); diff != "" {
		t.Errorf("fields with errors where the policy changes what is immutable (-want +got):\n%s", diff)
	}
	got, err := newLabelled(t, shared, widgetCase, namespace, "status").patch("status",
		`{"status":{"replicas":1}}`, "status")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]any{"replicas": int64(1), "readyReplicas": int64(0), "selector": "by=policy"},
		got.Object["status"]); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}
