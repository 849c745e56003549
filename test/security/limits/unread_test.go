// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"context"
	"crypto/tls"
	"fmt"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"example.com/extension-apiserver/pkg/apis/workshop/install"
)

var gadgets = install.StorageVersion().WithResource("gadgets")

// TestS37Unread: lists and watches that a client asks for and does not read give their seats back, which others need.
func TestS37Unread(t *testing.T) {
	t.Parallel()
	admin, err := shared.AdminConfig()
	if err != nil {
		t.Fatal(err)
	}
	allowReads(t, kubernetes.NewForConfigOrDie(admin), "idler")
	// 20 MiB: more than the buffers of two sockets hold.
	client := dynamic.NewForConfigOrDie(admin).Resource(gadgets)
	for i := range 100 {
		if _, err := client.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": gadgets.GroupVersion().String(), "kind": "Gadget", "spec": map[string]any{"purpose": "unread"},
			"metadata": map[string]any{"name": fmt.Sprintf("unread-%d", i), "annotations": map[string]any{"a": strings.Repeat("x", 200<<10)}},
		}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	idler, err := shared.Config("idler")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(idler.CertFile, idler.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	queries := []string{"", "?watch=1", "?limit=90"}
	for _, query := range queries {
		conn := mustDial(t, func(c *tls.Config) { c.Certificates = []tls.Certificate{pair} })
		if _, err := fmt.Fprintf(conn, "GET /apis/%s/gadgets%s HTTP/1.1\r\nHost: x\r\n\r\n", gadgets.GroupVersion(), query); err != nil {
			t.Fatal(err)
		}
	}
	seats := func(done func(float64) bool) func(context.Context) error {
		return func(ctx context.Context) error {
			if taken := seatsOf(ctx, t, admin); !done(taken) {
				return fmt.Errorf("%v seats are taken", taken)
			}
			return nil
		}
	}
	shared.Eventually(t, "the requests to be served", patience, seats(func(taken float64) bool { return taken >= float64(len(queries)) }))
	// What cannot be sent for 60 s, the request timeout, is given up.
	shared.Eventually(t, "the seats to be given back", 3*patience, seats(func(taken float64) bool { return taken == 0 }))
}

// seatsOf counts the seats that users of the priority level for everybody hold.
func seatsOf(ctx context.Context, t *testing.T, admin *rest.Config) float64 {
	t.Helper()
	sum := 0.0
	for _, sample := range metrics(ctx, t, admin)["apiserver_flowcontrol_current_executing_seats"] {
		if sample.Metric["priority_level"] == "global-default" {
			sum += float64(sample.Value)
		}
	}
	return sum
}

// allowReads lets the user read gadgets.
func allowReads(t *testing.T, admin kubernetes.Interface, user string) {
	t.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{gadgets.Group}, Resources: []string{gadgets.Resource}, Verbs: []string{"get", "list", "watch"}},
	}}
	if _, err := admin.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: user},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}}}
	if _, err := admin.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}
