// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bufio"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"example.com/extension-apiserver/pkg/envtest"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/extension-apiserver/test/clients/console"
)

func newWidget(t *testing.T, namespace, name string) {
	t.Helper()
	client := widgetCase.client(t, shared.Admin(t), namespace)
	if _, err := client.Create(t.Context(), widgetCase.object(t, name), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestWidgetConsole checks that lines are sent in both directions through the aggregator, and
// that either side can end the session.
func TestWidgetConsole(t *testing.T) {
	namespace := shared.NewNamespace(t)
	newWidget(t, namespace, "w")
	config := shared.Admin(t)

	t.Run("server ends", func(t *testing.T) {
		c := console.Open(t.Context(), t, config, namespace, "w")
		c.Say(t, "echo tick")
		c.ExpectLine(t, c.Out, "tick")
		c.Say(t, "nonsense")
		c.ExpectLine(t, c.ErrOut, `unknown command "nonsense"`)
		c.Say(t, "show")
		c.ExpectLine(t, c.Out, namespace+"/w: model ")
		c.Say(t, "exit")
		go drain(c.ErrOut)
		if err := c.End(t); err != nil {
			t.Errorf("after exit: %v, want success", err)
		}
	})
	t.Run("client ends its input", func(t *testing.T) {
		c := console.Open(t.Context(), t, config, namespace, "w")
		c.Say(t, "echo last")
		c.ExpectLine(t, c.Out, "last")
		if err := c.In.Close(); err != nil {
			t.Fatal(err)
		}
		if err := c.End(t); err != nil {
			t.Errorf("after the end of the input: %v, want success", err)
		}
	})
	t.Run("client leaves", func(t *testing.T) {
		ctx, leave := context.WithCancel(t.Context())
		c := console.Open(ctx, t, config, namespace, "w")
		c.Say(t, "echo x")
		c.ExpectLine(t, c.Out, "x")
		leave()
		if err := c.End(t); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want that the client left", err)
		}
	})
	t.Run("the widget goes", func(t *testing.T) {
		newWidget(t, namespace, "short-lived")
		c := console.Open(t.Context(), t, config, namespace, "short-lived")
		c.Say(t, "echo x")
		c.ExpectLine(t, c.Out, "x")
		if err := widgetCase.client(t, config, namespace).Delete(t.Context(), "short-lived",
			metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		c.Say(t, "show")
		if err := c.End(t); err == nil || !strings.Contains(err.Error(), `"short-lived" not found`) {
			t.Errorf("got %v, want that the widget is not found", err)
		}
	})
}

func drain(s *bufio.Scanner) {
	for s.Scan() {
	}
}

// TestWidgetConsoleStaysOpen checks that a console outlives the request timeouts of
// kube-apiserver and of the extension API server, both 60 s.
func TestWidgetConsoleStaysOpen(t *testing.T) {
	t.Parallel()
	namespace := shared.NewNamespace(t)
	newWidget(t, namespace, "w")
	c := console.Open(t.Context(), t, shared.Admin(t), namespace, "w")
	c.Say(t, "echo begin")
	c.ExpectLine(t, c.Out, "begin")
	select {
	case err := <-c.Ended:
		t.Fatalf("the console ended: %v, want it open for more than 70 s", err)
	case <-time.After(72 * time.Second):
	}
	c.Say(t, "echo still here")
	c.ExpectLine(t, c.Out, "still here")
	c.Say(t, "exit")
	if err := c.End(t); err != nil {
		t.Errorf("after exit: %v, want success", err)
	}
}

// TestWidgetConsolePermissions checks that the permission to read opens no console, although a
// WebSocket begins with a GET.
func TestWidgetConsolePermissions(t *testing.T) {
	admin := shared.Client(t)
	namespace := shared.NewNamespace(t)
	newWidget(t, namespace, "w")
	for _, tc := range []struct {
		name  string
		verbs []string
		check func(error) bool
		want  string
	}{
		{"read", []string{"get", "list", "watch"}, apierrors.IsForbidden, "Forbidden"},
		{"connect", []string{"get", "create"}, apierrors.IsBadRequest, "BadRequest, because the request was no upgrade"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			user := tc.name + "-of-" + namespace
			role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: tc.name}, Rules: []rbacv1.PolicyRule{
				{APIGroups: []string{widgetCase.resource.Group}, Resources: []string{"widgets", "widgets/console"},
					Verbs: tc.verbs},
			}}
			if _, err := admin.RbacV1().Roles(namespace).Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: tc.name},
				RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: tc.name},
				Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}}}
			if _, err := admin.RbacV1().RoleBindings(namespace).Create(t.Context(), binding,
				metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			config, err := shared.Config(user)
			if err != nil {
				t.Fatal(err)
			}
			client := widgetCase.client(t, config, namespace)
			shared.Eventually(t, "the RoleBinding to take effect", envtest.WaitTimeout, func(ctx context.Context) error {
				_, err := client.Get(ctx, "w", metav1.GetOptions{})
				return err
			})
			if _, err := client.Get(t.Context(), "w", metav1.GetOptions{}, "console"); !tc.check(err) {
				t.Errorf("GET of the console with the verbs %v: %v, want %s", tc.verbs, err, tc.want)
			}
			c := console.Open(t.Context(), t, config, namespace, "w")
			if tc.name == "connect" {
				c.Say(t, "exit")
			}
			err = c.End(t)
			if tc.name == "connect" && err != nil {
				t.Errorf("console with the verbs %v: %v, want success", tc.verbs, err)
			}
			if tc.name == "read" && (err == nil || !strings.Contains(err.Error(),
				`cannot create resource "widgets/console"`)) {
				t.Errorf("console with the verbs %v: %v, want it forbidden for the verb create", tc.verbs, err)
			}
		})
	}
}

// TestWidgetConsoleMissing checks that a connection to a missing object gets an ordinary error
// response.
func TestWidgetConsoleMissing(t *testing.T) {
	client := widgetCase.client(t, shared.Admin(t), shared.NewNamespace(t))
	if _, err := client.Get(t.Context(), "nobody", metav1.GetOptions{}, "console"); !apierrors.IsNotFound(err) {
		t.Errorf("console of a widget that does not exist: %v, want NotFound", err)
	}
}
