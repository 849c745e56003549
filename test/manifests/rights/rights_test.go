// SPDX-License-Identifier: Apache-2.0

package rights

import (
	"errors"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
)

const log = `{"verb":"get","user":{"username":"u"},"objectRef":{"resource":"leases","apiGroup":"g","namespace":"n","name":"a"},"annotations":{"authorization.k8s.io/decision":"allow"}}
{"verb":"delete","user":{"username":"u"},"objectRef":{"resource":"leases","apiGroup":"g","namespace":"n","name":"a"},"annotations":{"authorization.k8s.io/decision":"forbid"}}
{"verb":"list","user":{"username":"another"},"objectRef":{"resource":"leases","apiGroup":"g","namespace":"n"},"annotations":{"authorization.k8s.io/decision":"allow"}}
{"verb":"update","user":{"username":"u"},"objec`

func TestCompare(t *testing.T) {
	for _, tc := range []struct {
		name, user string
		rule       rbacv1.PolicyRule
		never      map[string]string
		want       []string // in the errors, in their order
	}{
		{"forbidden", "u", rbacv1.PolicyRule{Verbs: []string{"get"}}, nil, []string{"forbidden to u: delete leases.g n/a"}},
		{"not used, and by another user only", "u", rbacv1.PolicyRule{Verbs: []string{"list"}}, nil, []string{"forbidden", `"list leases.g" and never uses it`}},
		{"another name", "u", rbacv1.PolicyRule{Verbs: []string{"get"}, ResourceNames: []string{"a", "b"}}, nil,
			[]string{"forbidden", `"get leases.g n/b" and never uses it`}},
		{"an exception", "u", rbacv1.PolicyRule{Verbs: []string{"list"}}, map[string]string{"list leases.g": "why"}, []string{"forbidden"}},
		{"an exception that is used", "u", rbacv1.PolicyRule{Verbs: []string{"get"}}, map[string]string{"get leases.g": "why"}, []string{"forbidden", "not to be used: why"}},
		{"an exception that is not granted", "u", rbacv1.PolicyRule{}, map[string]string{"watch leases.g": "why"}, []string{"forbidden", "makes an exception for"}},
		{"no request", "nobody", rbacv1.PolicyRule{}, nil, []string{"no request of nobody"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.rule.APIGroups, tc.rule.Resources = []string{"g"}, []string{"leases"}
			granted, err := Flatten("n", []rbacv1.PolicyRule{tc.rule})
			if err != nil {
				t.Fatal(err)
			}
			got := Compare(tc.user, []byte(log), granted, tc.never)
			if len(got) != len(tc.want) {
				t.Fatalf("got %d errors, want %q: %v", len(got), tc.want, errors.Join(got...))
			}
			for i, want := range tc.want {
				if !strings.Contains(got[i].Error(), want) {
					t.Errorf("error %d is %q, want one with %q", i, got[i], want)
				}
			}
		})
	}
}
