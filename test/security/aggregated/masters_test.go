// SPDX-License-Identifier: Apache-2.0

package aggregated

import (
	"net/http"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
)

// TestS24Masters checks that system:masters is authorized without a SubjectAccessReview, in the
// server as in kube-apiserver. Only certificates and impersonation give the group, and both need
// more than this API: it lets no user join the group.
func TestS24Masters(t *testing.T) {
	newGadget(t, shared, unique("masters"))
	name := unique("chief")
	config, err := shared.Config(name, user.SystemPrivilegedGroup)
	if err != nil {
		t.Fatal(err)
	}
	// No role and no binding refers to this user.
	newEndpoint(t, config).Must(t, http.MethodGet, current+"/gadgets", nil, nil)
	master := &user.DefaultInfo{Name: name, Groups: []string{user.SystemPrivilegedGroup}}
	direct(t, shared, master).Must(t, http.MethodGet, "/metrics", nil, nil)
	if got := specs(logs.checks(t, shared)[name]); got != nil {
		t.Errorf("our server reviewed a user of system:masters: %+v; want no SubjectAccessReview", got)
	}

	// Similar group names are reviewed, and denied.
	for _, groups := range [][]string{nil, {"system:master"}, {"System:Masters"}, {"system:masters,x"},
		{"x, system:masters"}, {"system:masters/"}, {"%73ystem:masters"}} {
		who := &user.DefaultInfo{Name: unique("chief"), Groups: groups}
		if got := through(t, shared, who).Do(t, http.MethodGet, current+"/gadgets", nil,
			nil); got.Status != http.StatusForbidden {
			t.Errorf("groups %q through kube-apiserver: %s, want 403", groups, got)
		}
		if got := direct(t, shared, who).Do(t, http.MethodGet, current+"/gadgets", nil,
			nil); got.Status != http.StatusForbidden {
			t.Errorf("groups %q at our server: %s, want 403", groups, got)
		}
		if got := logs.checks(t, shared)[who.Name]; len(got) != 1 {
			t.Errorf("groups %q: our server sent %d SubjectAccessReviews, want one", groups, len(got))
		}
	}
}
