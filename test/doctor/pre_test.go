// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"example.com/extension-apiserver/internal/doctor"
)

// preFaults are faults of a cluster before an installation. Others are among trustFaults.
var preFaults = []struct {
	name, id string
	// inject returns the configuration of the user.
	inject func(*testing.T) *rest.Config
}{
	{"user without permissions", "I02", func(t *testing.T) *rest.Config {
		return shared.User(t, "installer", rbacv1.PolicyRule{APIGroups: []string{"apiregistration.k8s.io"},
			Resources: []string{"apiservices"}, Verbs: []string{"list"}})
	}},
	{"no ClusterRole for reviews", "I03", func(t *testing.T) *rest.Config {
		return withoutObject(t, shared.Client(t).RbacV1().ClusterRoles(), "system:auth-delegator")
	}},
	{"no Role for the trusted CA", "I03", func(t *testing.T) *rest.Config {
		return withoutObject(t, shared.Client(t).RbacV1().Roles(metav1.NamespaceSystem),
			"extension-apiserver-authentication-reader")
	}},
}

// withoutObject deletes an object until the end of the test, and returns the configuration of an
// administrator.
func withoutObject[T metav1.Object](t *testing.T, client interface {
	Get(context.Context, string, metav1.GetOptions) (T, error)
	Create(context.Context, T, metav1.CreateOptions) (T, error)
	Delete(context.Context, string, metav1.DeleteOptions) error
}, name string) *rest.Config {
	t.Helper()
	object, err := client.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		object.SetResourceVersion("")
		if _, err := client.Create(context.WithoutCancel(t.Context()), object, metav1.CreateOptions{}); err != nil {
			t.Errorf("restore %s: %v", name, err)
		}
	})
	return shared.Admin(t)
}

func TestPre(t *testing.T) {
	options := doctor.Options{Pre: true}
	report, err := diagnoseWith(t.Context(), shared.Admin(t), options)
	if err != nil || len(report.RootCauses)+len(report.Unread) > 0 {
		t.Fatalf("in a healthy cluster: got %v and\n%s", err, text(report))
	}
	for _, tc := range preFaults {
		t.Run(tc.name, func(t *testing.T) {
			report, err := diagnoseWith(t.Context(), tc.inject(t), options)
			if err != nil || !slices.Equal(ids(report), []string{tc.id}) {
				t.Errorf("got %v, want %s\n%s", err, tc.id, text(report))
			}
			t.Log("\n" + text(report))
		})
	}
	healthy(t)
}
