// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"example.com/extension-apiserver/pkg/envtest"
)

var dryRun = metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}

const (
	onCreate = admissionregistrationv1.Create
	onUpdate = admissionregistrationv1.Update
)

// caseLabel is the label of the objects to which a policy or webhook of a test applies. It keeps
// tests separate.
const caseLabel = "test.example.com/case"

// labelled sends requests for objects of one kind with the label of a case.
type labelled struct {
	client dynamic.ResourceInterface
	kind   kindCase
	label  string
	ctx    context.Context
	t      *testing.T
}

func newLabelled(t *testing.T, e *envtest.Environment, kind kindCase, namespace, label string) labelled {
	t.Helper()
	return labelled{kind.client(t, e.Admin(t), namespace), kind, label, t.Context(), t}
}

// create creates an object of the sample whose spec has these fields replaced.
func (l labelled) create(name string, spec map[string]any,
	options ...metav1.CreateOptions) (*unstructured.Unstructured, error) {
	l.t.Helper()
	obj := l.kind.object(l.t, name)
	obj.SetLabels(map[string]string{caseLabel: l.label})
	maps.Copy(obj.Object["spec"].(map[string]any), spec)
	return l.client.Create(l.ctx, obj, append(options, metav1.CreateOptions{})[0])
}

func (l labelled) patch(name, patch string, subresources ...string) (*unstructured.Unstructured, error) {
	return l.client.Patch(l.ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
}

// inCase limits a policy to the objects of a case in a namespace, or to cluster-scoped objects of
// the case, to which a namespace selector does not apply.
func inCase(namespace, label string,
	rule admissionregistrationv1.RuleWithOperations) *admissionregistrationv1.MatchResources {
	return &admissionregistrationv1.MatchResources{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
		ObjectSelector:    &metav1.LabelSelector{MatchLabels: map[string]string{caseLabel: label}},
		ResourceRules:     []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: rule}},
	}
}

func rule(resource string,
	operations ...admissionregistrationv1.OperationType) admissionregistrationv1.RuleWithOperations {
	return admissionregistrationv1.RuleWithOperations{
		Operations: operations,
		Rule: admissionregistrationv1.Rule{APIGroups: []string{widgetCase.resource.Group},
			APIVersions: []string{"*"}, Resources: []string{resource}},
	}
}

// validating is a ValidatingAdmissionPolicy and a binding with the same name.
type validating struct {
	name    string
	policy  admissionregistrationv1.ValidatingAdmissionPolicySpec
	binding admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec
}

// apply creates the policy and its binding, which denies by default. remove deletes both. They
// are deleted at the end of the test at the latest.
func (v validating) apply(t *testing.T, e *envtest.Environment) (remove func()) {
	t.Helper()
	client := e.Client(t).AdmissionregistrationV1()
	meta := metav1.ObjectMeta{Name: v.name}
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: meta, Spec: v.policy}
	if _, err := client.ValidatingAdmissionPolicies().Create(t.Context(), policy, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	v.binding.PolicyName = v.name
	if v.binding.ValidationActions == nil {
		v.binding.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}
	}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: meta, Spec: v.binding}
	if _, err := client.ValidatingAdmissionPolicyBindings().Create(t.Context(), binding,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	remove = sync.OnceFunc(func() {
		ctx := context.WithoutCancel(t.Context())
		if err := errors.Join(client.ValidatingAdmissionPolicyBindings().Delete(ctx, v.name, metav1.DeleteOptions{}),
			client.ValidatingAdmissionPolicies().Delete(ctx, v.name, metav1.DeleteOptions{})); err != nil {
			t.Errorf("remove policy: %v", err)
		}
	})
	t.Cleanup(remove)
	return remove
}

// waitForPolicies creates another policy and waits until it denies a request. A server processes
// changes of policies together, each second, so policies that were created before are also in
// effect.
func waitForPolicies(t *testing.T, e *envtest.Environment, namespace string) {
	t.Helper()
	last := validating{name: uniqueName(t), policy: admissionregistrationv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: inCase(namespace, "last", rule("widgets", admissionregistrationv1.Create)),
		Validations:      []admissionregistrationv1.Validation{{Expression: "false", Message: "in effect"}},
	}}
	defer last.apply(t, e)()
	client := newLabelled(t, e, widgetCase, namespace, "last")
	e.Eventually(t, "the policies to be in effect", envtest.WaitTimeout, func(context.Context) error {
		_, err := client.create("w", nil, dryRun)
		return denial{policy: last.name, message: "in effect"}.check(err)
	})
}

// denial is the expected rejection of a request by a policy. The zero value expects that the
// request is accepted.
type denial struct {
	policy, message string
	// reason is Invalid unless the policy sets another.
	reason metav1.StatusReason
}

func (d denial) check(err error) error {
	if d.message == "" {
		return err
	}
	reason, code := metav1.StatusReasonInvalid, int32(http.StatusUnprocessableEntity)
	if d.reason == metav1.StatusReasonForbidden {
		reason, code = d.reason, http.StatusForbidden
	}
	message := fmt.Sprintf("ValidatingAdmissionPolicy '%[1]s' with binding '%[1]s' denied request: %s",
		d.policy, d.message)
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Code != code || status.Status().Reason != reason ||
		!strings.HasSuffix(err.Error(), message) {
		return fmt.Errorf("got %s, want %d %s: %s", fmt.Sprint(err), code, reason, message)
	}
	if causes := status.Status().Details.Causes; len(causes) != 1 || causes[0].Message != message {
		return fmt.Errorf("causes %+v, want one: %s", causes, message)
	}
	return nil
}
