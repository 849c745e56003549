// SPDX-License-Identifier: Apache-2.0

package envtest_test

import (
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/dynamic"

	"example.com/extension-apiserver/pkg/envtest"
)

// A test of a server's kind through a real kube-apiserver, as a user with no other permissions.
func ExampleNew() {
	var t *testing.T // of the test
	e := envtest.New(t, envtest.Options{Server: "example.org/notes/cmd/notes-apiserver", ExternalEtcd: true})
	if err := e.Grant(t.Context(), "jane", rbacv1.PolicyRule{
		APIGroups: []string{"notes.example.org"}, Resources: []string{"notes"}, Verbs: []string{"create", "get"},
	}); err != nil {
		t.Fatal(err)
	}
	config, err := e.Config("jane")
	if err != nil {
		t.Fatal(err)
	}
	_ = dynamic.NewForConfigOrDie(config) // or your typed client
}
