// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/url"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
)

// console is an open console of a widget.
type console struct {
	in     *io.PipeWriter
	out    *bufio.Scanner
	errOut *bufio.Scanner
	// ended gets what Stream returned.
	ended chan error
}

// openConsole connects as the user of the config, with the client that kubectl exec uses.
func openConsole(ctx context.Context, t *testing.T, config *rest.Config, namespace, name string) *console {
	t.Helper()
	target, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	target.Path = consolePath(namespace, name)
	executor, err := remotecommand.NewWebSocketExecutor(config, "GET", target.String())
	if err != nil {
		t.Fatal(err)
	}
	in, stdin := io.Pipe()
	stdout, out := io.Pipe()
	stderr, errOut := io.Pipe()
	c := &console{in: stdin, out: bufio.NewScanner(stdout), errOut: bufio.NewScanner(stderr), ended: make(chan error, 1)}
	go func() {
		err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: in, Stdout: out, Stderr: errOut})
		out.CloseWithError(err)
		errOut.CloseWithError(err)
		c.ended <- err
	}()
	return c
}

func consolePath(namespace, name string) string {
	gvr := widgetCase.resource
	return "/apis/" + gvr.Group + "/" + gvr.Version + "/namespaces/" + namespace + "/widgets/" + name + "/console"
}

// say sends a line; answer reads one from the output.
func (c *console) say(t *testing.T, line string) {
	t.Helper()
	if _, err := io.WriteString(c.in, line+"\n"); err != nil {
		t.Fatalf("say %q: %v", line, err)
	}
}

func (c *console) answer(t *testing.T, from *bufio.Scanner, want string) {
	t.Helper()
	if !from.Scan() {
		t.Fatalf("the console ended (%v), want the answer %q", <-c.ended, want)
	}
	if got := from.Text(); !strings.HasPrefix(got, want) {
		t.Errorf("answer %q, want %q", got, want)
	}
}

// end waits for the end and returns how the server said it was.
func (c *console) end(t *testing.T) error {
	t.Helper()
	select {
	case err := <-c.ended:
		return err
	case <-time.After(patience):
		t.Fatalf("the console is open after %s, want it ended", patience)
		return nil
	}
}

func newWidget(t *testing.T, namespace, name string) {
	t.Helper()
	client := widgetCase.client(t, adminConfig(t, shared), namespace)
	if _, err := client.Create(t.Context(), widgetCase.object(t, name), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestWidgetConsole: lines go both ways through the aggregator, and either side can end the conversation.
func TestWidgetConsole(t *testing.T) {
	namespace := newNamespace(t, shared)
	newWidget(t, namespace, "w")
	config := adminConfig(t, shared)

	t.Run("server ends", func(t *testing.T) {
		c := openConsole(t.Context(), t, config, namespace, "w")
		c.say(t, "echo tick")
		c.answer(t, c.out, "tick")
		c.say(t, "nonsense")
		c.answer(t, c.errOut, `unknown command "nonsense"`)
		c.say(t, "show")
		c.answer(t, c.out, namespace+"/w: model ")
		c.say(t, "exit")
		go drain(c.errOut)
		if err := c.end(t); err != nil {
			t.Errorf("after exit: %v, want success", err)
		}
	})
	t.Run("client ends its input", func(t *testing.T) {
		c := openConsole(t.Context(), t, config, namespace, "w")
		c.say(t, "echo last")
		c.answer(t, c.out, "last")
		if err := c.in.Close(); err != nil {
			t.Fatal(err)
		}
		if err := c.end(t); err != nil {
			t.Errorf("after the end of the input: %v, want success", err)
		}
	})
	t.Run("client leaves", func(t *testing.T) {
		ctx, leave := context.WithCancel(t.Context())
		c := openConsole(ctx, t, config, namespace, "w")
		c.say(t, "echo x")
		c.answer(t, c.out, "x")
		leave()
		if err := c.end(t); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want that the client left", err)
		}
	})
	t.Run("the widget goes", func(t *testing.T) {
		newWidget(t, namespace, "short-lived")
		c := openConsole(t.Context(), t, config, namespace, "short-lived")
		c.say(t, "echo x")
		c.answer(t, c.out, "x")
		if err := widgetCase.client(t, config, namespace).Delete(t.Context(), "short-lived", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		c.say(t, "show")
		if err := c.end(t); err == nil || !strings.Contains(err.Error(), `"short-lived" not found`) {
			t.Errorf("got %v, want that the widget is not found", err)
		}
	})
}

func drain(s *bufio.Scanner) {
	for s.Scan() {
	}
}

// TestWidgetConsoleStaysOpen: neither the request timeout of kube-apiserver nor that of our server, both 60 s, ends a console.
func TestWidgetConsoleStaysOpen(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t, shared)
	newWidget(t, namespace, "w")
	c := openConsole(t.Context(), t, adminConfig(t, shared), namespace, "w")
	c.say(t, "echo begin")
	c.answer(t, c.out, "begin")
	select {
	case err := <-c.ended:
		t.Fatalf("the console ended: %v, want it open for more than 70 s", err)
	case <-time.After(72 * time.Second):
	}
	c.say(t, "echo still here")
	c.answer(t, c.out, "still here")
	c.say(t, "exit")
	if err := c.end(t); err != nil {
		t.Errorf("after exit: %v, want success", err)
	}
}

// TestWidgetConsoleRights: a WebSocket begins with a GET, but the right to read opens no console.
func TestWidgetConsoleRights(t *testing.T) {
	admin := adminClient(t, shared)
	namespace := newNamespace(t, shared)
	newWidget(t, namespace, "w")
	for _, tc := range []struct {
		name  string
		verbs []string
		check func(error) bool
		want  string
	}{
		{"read", []string{"get", "list", "watch"}, apierrors.IsForbidden, "Forbidden"},
		{"connect", []string{"get", "create"}, apierrors.IsBadRequest, "BadRequest, for it asked without an upgrade"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			user := tc.name + "-of-" + namespace
			role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: tc.name}, Rules: []rbacv1.PolicyRule{
				{APIGroups: []string{widgetCase.resource.Group}, Resources: []string{"widgets", "widgets/console"}, Verbs: tc.verbs},
			}}
			if _, err := admin.RbacV1().Roles(namespace).Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: tc.name},
				RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: tc.name},
				Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}}}
			if _, err := admin.RbacV1().RoleBindings(namespace).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			config, err := shared.Config(user)
			if err != nil {
				t.Fatal(err)
			}
			client := widgetCase.client(t, config, namespace)
			shared.Eventually(t, "the RoleBinding to take effect", patience, func(ctx context.Context) error {
				_, err := client.Get(ctx, "w", metav1.GetOptions{})
				return err
			})
			if _, err := client.Get(t.Context(), "w", metav1.GetOptions{}, "console"); !tc.check(err) {
				t.Errorf("GET of the console with the verbs %v: %v, want %s", tc.verbs, err, tc.want)
			}
			c := openConsole(t.Context(), t, config, namespace, "w")
			if tc.name == "connect" {
				c.say(t, "exit")
			}
			err = c.end(t)
			if tc.name == "connect" && err != nil {
				t.Errorf("console with the verbs %v: %v, want success", tc.verbs, err)
			}
			if tc.name == "read" && (err == nil || !strings.Contains(err.Error(), "forbidden: the verb create is needed beside get")) {
				t.Errorf("console with the verbs %v: %v, want it forbidden for the verb create", tc.verbs, err)
			}
		})
	}
}

// TestWidgetConsoleMissing: what cannot be connected is an answer like any other.
func TestWidgetConsoleMissing(t *testing.T) {
	client := widgetCase.client(t, adminConfig(t, shared), newNamespace(t, shared))
	if _, err := client.Get(t.Context(), "nobody", metav1.GetOptions{}, "console"); !apierrors.IsNotFound(err) {
		t.Errorf("console of a widget that is not there: %v, want NotFound", err)
	}
}
