// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"testing"

	"example.com/extension-apiserver/pkg/envtest"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"example.com/extension-apiserver/sample/apis/workshop/install"
)

// TestFlowControl checks that a FlowSchema of the cluster determines how the extension API server
// classifies a user's requests, from its creation to its deletion. Administrators are exempt, so
// that they can always intervene.
func TestFlowControl(t *testing.T) {
	group := install.GroupVersions()[0].Group
	user := shared.User(t, "crowd", rbacv1.PolicyRule{Verbs: []string{"list"}, APIGroups: []string{group},
		Resources: []string{"*"}})
	schemas := shared.Client(t).FlowcontrolV1().FlowSchemas()
	level := func(name string) types.UID {
		t.Helper()
		l, err := shared.Client(t).FlowcontrolV1().PriorityLevelConfigurations().Get(t.Context(), name,
			metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return l.UID
	}
	built := func(name string) flowcontrolv1.FlowSchema {
		t.Helper()
		s, err := schemas.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return *s
	}
	k := kindCases[0]
	path := k.path(shared.NewNamespace(t))
	expectSchema := func(server envtest.Endpoint, want flowcontrolv1.FlowSchema) {
		t.Helper()
		wantLevel := level(want.Spec.PriorityLevelConfiguration.Name)
		shared.Eventually(t, "requests to be classified by "+want.Name, envtest.WaitTimeout, func(context.Context) error {
			header := server.Get(t, path, nil).Header
			// Through kube-apiserver the response has two values: first kube-apiserver's, then
			// the extension API server's.
			schemas := header.Values(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID)
			levels := header.Values(flowcontrolv1.ResponseHeaderMatchedPriorityLevelConfigurationUID)
			if len(schemas) == 0 || schemas[len(schemas)-1] != string(want.UID) || len(levels) != len(schemas) ||
				levels[len(levels)-1] != string(wantLevel) {
				return fmt.Errorf("FlowSchemas %v, priority levels %v; want %s and %s last", schemas, levels,
					want.UID, wantLevel)
			}
			return nil
		})
	}
	crowd, admin := envtest.NewEndpoint(t, shared.Servers[0].ConfigAs(shared, user)), direct(t, shared)
	expectSchema(crowd, built("global-default"))
	expectSchema(admin, built("exempt"))
	expectSchema(aggregator(t, shared), built("exempt"))

	made, err := schemas.Create(t.Context(), newFlowSchema(uniqueName(t), "crowd", group), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	deleted := false
	t.Cleanup(func() {
		if !deleted {
			_ = schemas.Delete(context.WithoutCancel(t.Context()), made.Name, metav1.DeleteOptions{})
		}
	})
	dispatched := map[string]string{"flow_schema": made.Name, "priority_level": "workload-low"}
	expectSchema(crowd, *made)
	expectSchema(envtest.NewEndpoint(t, user), *made)
	expectSchema(admin, built("exempt"))
	if got := metric(t, admin, "apiserver_flowcontrol_dispatched_requests_total", dispatched); got < 2 {
		t.Errorf("apiserver_flowcontrol_dispatched_requests_total%v: %v, want at least 2", dispatched, got)
	}

	if err := schemas.Delete(t.Context(), made.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	deleted = true
	expectSchema(crowd, built("global-default"))
}

// newFlowSchema assigns a user's requests for a group to the priority level workload-low.
func newFlowSchema(name, user, group string) *flowcontrolv1.FlowSchema {
	return &flowcontrolv1.FlowSchema{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: flowcontrolv1.FlowSchemaSpec{
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: "workload-low"},
			MatchingPrecedence:         500,
			DistinguisherMethod: &flowcontrolv1.FlowDistinguisherMethod{
				Type: flowcontrolv1.FlowDistinguisherMethodByUserType},
			Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
				Subjects: []flowcontrolv1.Subject{{Kind: flowcontrolv1.SubjectKindUser,
					User: &flowcontrolv1.UserSubject{Name: user}}},
				ResourceRules: []flowcontrolv1.ResourcePolicyRule{{
					Verbs: []string{"list"}, APIGroups: []string{group}, Resources: []string{"*"}, ClusterScope: true,
					Namespaces: []string{"*"},
				}},
			}},
		},
	}
}
