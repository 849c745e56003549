// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"example.com/extension-apiserver/pkg/envtest"
)

var configMapKind = &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}

// withParams returns a policy that limits replicas to the value in its parameter.
func withParams(namespace, name string, failure admissionregistrationv1.FailurePolicyType,
	ref admissionregistrationv1.ParamRef) validating {
	return validating{name: namespace + "-" + name,
		policy: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			ParamKind:        configMapKind,
			FailurePolicy:    &failure,
			MatchConstraints: inCase(namespace, name, rule("widgets", onCreate)),
			Validations: []admissionregistrationv1.Validation{{
				Expression:        "object.spec.replicas <= int(params.data.most)",
				MessageExpression: "'at most ' + params.data.most",
			}},
		},
		binding: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{ParamRef: &ref},
	}
}

// TestWidgetPolicyParams checks that a policy can have parameters in objects that the server may
// read, and follows their changes. While the server may not read them, the failure policy applies
// to the requests that the policy matches, and no other request is affected.
func TestWidgetPolicyParams(t *testing.T) {
	namespace := shared.NewNamespace(t)
	// Now the policies of other tests are no longer in effect, nor are the informers of their
	// parameters.
	waitForPolicies(t, shared, namespace)
	setParam(t, namespace, "limit", "2")
	named := admissionregistrationv1.ParamRef{Name: "limit",
		ParameterNotFoundAction: new(admissionregistrationv1.DenyAction)}
	remove := []func(){
		withParams(namespace, "named", admissionregistrationv1.Fail, named).apply(t, shared),
		withParams(namespace, "ignoring", admissionregistrationv1.Ignore, named).apply(t, shared),
	}
	waitForPolicies(t, shared, namespace)
	create := func(label string, replicas int64) error {
		_, err := newLabelled(t, shared, widgetCase, namespace, label).create("w",
			map[string]any{"maxReplicas": int64(9), "replicas": replicas}, dryRun)
		return err
	}
	unreadable := denial{policy: namespace + "-named",
		message: fmt.Sprintf("failed to configure binding: paramKind kind `%s` not yet synced to use for admission",
			configMapKind)}
	for label, want := range map[string]denial{"named": unreadable, "ignoring": {}, "none": {}} {
		if err := want.check(create(label, 1)); err != nil {
			t.Errorf("create in case %s while parameters cannot be read: %v", label, err)
		}
	}
	if status, body := directRequest(t, shared, shared.Servers[0].URL, nil, http.MethodGet, "/readyz?verbose", nil,
		nil); status != http.StatusOK {
		t.Errorf("/readyz while parameters cannot be read: %d %s, want 200: requests that the policy is not about "+
			"get responses", status, body)
	}

	allowParams(t, shared)
	limit := func(label string, most int64) {
		t.Helper()
		refused := denial{policy: namespace + "-" + label, message: fmt.Sprintf("at most %d", most)}
		shared.Eventually(t, fmt.Sprintf("the limit of %d in case %s", most, label), envtest.WaitTimeout,
			func(context.Context) error {
				if err := create(label, most); err != nil {
					return err
				}
				return refused.check(create(label, most+1))
			})
	}
	limit("named", 2)
	setParam(t, namespace, "limit", "3")
	limit("named", 3)
	limit("ignoring", 3)

	// After a time without a policy that needs them, parameters are read again
	// (kubernetes/kubernetes#130887).
	for _, f := range remove {
		f()
	}
	shared.Eventually(t, "the removed policies to be out of effect", envtest.WaitTimeout,
		func(context.Context) error { return create("named", 9) })
	setParam(t, namespace, "limit", "4")
	withParams(namespace, "again", admissionregistrationv1.Fail, named).apply(t, shared)
	limit("again", 4)
}

// TestWidgetPolicyParamsNotFound checks that the binding and the failure policy determine the
// result if the parameters do not exist.
func TestWidgetPolicyParamsNotFound(t *testing.T) {
	allowParams(t, shared)
	namespace := shared.NewNamespace(t)
	setParam(t, namespace, "one", "3")
	setParam(t, namespace, "two", "2")
	all := metav1.LabelSelector{}
	deny, allow := new(admissionregistrationv1.DenyAction), new(admissionregistrationv1.AllowAction)
	notFound := "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction"
	cases := []struct {
		name    string
		failure admissionregistrationv1.FailurePolicyType
		ref     admissionregistrationv1.ParamRef
		want    string
	}{
		{"deny", admissionregistrationv1.Fail, admissionregistrationv1.ParamRef{Name: "none",
			ParameterNotFoundAction: deny}, notFound},
		{"allow", admissionregistrationv1.Fail, admissionregistrationv1.ParamRef{Name: "none",
			ParameterNotFoundAction: allow}, ""},
		{"deny-ignored", admissionregistrationv1.Ignore, admissionregistrationv1.ParamRef{Name: "none",
			ParameterNotFoundAction: deny}, ""},
		{"other-namespace", admissionregistrationv1.Fail, admissionregistrationv1.ParamRef{Name: "one",
			Namespace: "default", ParameterNotFoundAction: deny}, notFound},
		{"every-one", admissionregistrationv1.Fail, admissionregistrationv1.ParamRef{Selector: &all,
			ParameterNotFoundAction: deny}, "at most 2"},
	}
	for _, tc := range cases {
		if tc.ref.Selector != nil {
			tc.ref.Selector.MatchLabels = map[string]string{caseLabel: namespace}
		}
		withParams(namespace, tc.name, tc.failure, tc.ref).apply(t, shared)
	}
	waitForPolicies(t, shared, namespace)
	for _, tc := range cases {
		// The informer of the parameters starts with the first policy that needs them.
		shared.Eventually(t, "case "+tc.name, envtest.WaitTimeout, func(context.Context) error {
			_, err := newLabelled(t, shared, widgetCase, namespace, tc.name).create("w",
				map[string]any{"replicas": int64(3)}, dryRun)
			return denial{policy: namespace + "-" + tc.name, message: tc.want}.check(err)
		})
	}
}

// setParam creates or changes the ConfigMap that is a parameter.
func setParam(t *testing.T, namespace, name, most string) {
	t.Helper()
	body := fmt.Appendf(nil,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"labels":{%q:%q}},"data":{"most":%q}}`, name,
		caseLabel, namespace, most)
	if _, err := shared.Client(t).CoreV1().ConfigMaps(namespace).Patch(t.Context(), name, types.ApplyPatchType, body,
		metav1.PatchOptions{FieldManager: "test"}); err != nil {
		t.Fatal(err)
	}
}

// allowParams allows the server to read ConfigMaps until the end of the test. The manifests do
// not.
func allowParams(t *testing.T, e *envtest.Environment) {
	t.Helper()
	rbac := e.Client(t).RbacV1()
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: uniqueName(t)},
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"},
			Verbs: []string{"get", "list", "watch"}}},
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: envtest.Namespace,
			Name: "extension-apiserver"}},
	}
	if _, err := rbac.ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := rbac.ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := rbac.ClusterRoleBindings().Delete(context.WithoutCancel(t.Context()), role.Name,
			metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
}

// TestWidgetPolicyOwnParams checks that a policy can have its parameters in the server's own API,
// which the server may read.
func TestWidgetPolicyOwnParams(t *testing.T) {
	namespace := shared.NewNamespace(t)
	gadget := gadgetCase.object(t, uniqueName(t))
	gadgets := gadgetCase.client(t, shared.Admin(t), "")
	if err := unstructured.SetNestedField(gadget.Object, int64(2), "spec", "precision"); err != nil {
		t.Fatal(err)
	}
	if _, err := gadgets.Create(t.Context(), gadget, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := gadgets.Delete(context.WithoutCancel(t.Context()), gadget.GetName(),
			metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	v := withParams(namespace, "own", admissionregistrationv1.Fail,
		admissionregistrationv1.ParamRef{Name: gadget.GetName(),
			ParameterNotFoundAction: new(admissionregistrationv1.DenyAction)})
	v.policy.ParamKind = &admissionregistrationv1.ParamKind{APIVersion: gadgetCase.resource.GroupVersion().String(),
		Kind: "Gadget"}
	v.policy.Validations = []admissionregistrationv1.Validation{{Expression: "object.spec.replicas <= " +
		"params.spec.precision", Message: "at most the precision"}}
	v.apply(t, shared)
	waitForPolicies(t, shared, namespace)
	shared.Eventually(t, "the limit of the gadget", envtest.WaitTimeout, func(context.Context) error {
		create := func(replicas int64) error {
			_, err := newLabelled(t, shared, widgetCase, namespace, "own").create("w",
				map[string]any{"replicas": replicas}, dryRun)
			return err
		}
		if err := create(2); err != nil {
			return err
		}
		return denial{policy: namespace + "-own", message: "at most the precision"}.check(create(3))
	})
}
