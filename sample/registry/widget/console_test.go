// SPDX-License-Identifier: Apache-2.0

package widget

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"

	"example.com/extension-apiserver/sample/apis/workshop"
)

// TestConsole: a conversation with the client that kubectl exec uses, and each of its ends.
func TestConsole(t *testing.T) {
	gone := apierrors.NewNotFound(workshop.Resource("widgets"), "w")
	for _, tc := range []struct {
		name      string
		protocols []string
		talk      func(t *testing.T, c *console)
		// want is the message of the Status with which the server ends, "" for success.
		want string
	}{
		{"exit", nil, func(t *testing.T, c *console) {
			c.say(t, "echo tick")
			c.hear(t, c.out, "tick")
			c.say(t, "dance")
			c.hear(t, c.errOut, `unknown command "dance", expected one of:`)
			for line := range strings.Lines(consoleHelp) {
				c.hear(t, c.errOut, strings.TrimSpace(line))
			}
			c.say(t, "echo tock")
			c.hear(t, c.out, "tock")
			c.say(t, "exit")
		}, ""},
		{"exit, the older protocol", []string{"v4.channel.k8s.io"}, func(t *testing.T, c *console) {
			c.say(t, "echo tick")
			c.hear(t, c.out, "tick")
			c.say(t, "exit")
		}, ""},
		{"end of the input", nil, func(t *testing.T, c *console) {
			c.say(t, "echo tick")
			c.hear(t, c.out, "tick")
			if err := c.in.Close(); err != nil {
				t.Error(err)
			}
		}, ""},
		{"line too long", nil, func(t *testing.T, c *console) { c.say(t, strings.Repeat("x", maxConsoleLine+1)) }, "a line is longer than 4096 bytes"},
		{"the widget is gone", nil, func(t *testing.T, c *console) { c.say(t, "show") }, gone.Error()},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newConsole(&oneWidget{then: func(context.Context) error { return gone }}, allowing())
			url, ended := serveConsoles(t, r)
			c := openConsole(t.Context(), t, url, tc.protocols...)
			tc.talk(t, c)
			err := c.end(t)
			if tc.want == "" && err != nil {
				t.Errorf("got %v, want success", err)
			}
			if tc.want != "" && (err == nil || err.Error() != tc.want) {
				t.Errorf("got %v, want %s", err, tc.want)
			}
			await(t, "the end of the session", ended)
		})
	}
}

// TestConsoleClientLeaves: a client that goes without a word leaves nothing behind, even while the server writes.
func TestConsoleClientLeaves(t *testing.T) {
	for name, line := range map[string]string{"silent": "", "in the middle of a command": "echo " + strings.Repeat("x", 4000)} {
		t.Run(name, func(t *testing.T) {
			r := newConsole(&oneWidget{}, allowing())
			url, ended := serveConsoles(t, r)
			ctx, leave := context.WithCancel(t.Context())
			c := openConsole(ctx, t, url)
			c.say(t, "echo tick")
			c.hear(t, c.out, "tick")
			if line != "" {
				c.say(t, line)
			}
			leave()
			if err := c.end(t); !errors.Is(err, context.Canceled) {
				t.Errorf("got %v, want that the client left", err)
			}
			await(t, "the end of the session", ended)
			counted := make(chan struct{})
			go func() {
				r.sessions.Wait()
				close(counted)
			}()
			await(t, "a count of 0 open sessions", counted)
		})
	}
}

// TestConsoleConnect: what can be refused is refused before the upgrade, where a client gets a Status, and nothing is read
// for one who may not.
func TestConsoleConnect(t *testing.T) {
	for _, tc := range []struct {
		name, widget string
		a            authorizer.Authorizer
		check        func(error) bool
		reads        int32
	}{
		{"allowed", "w", allowing(), func(err error) bool { return err == nil }, 1},
		{"missing", "nobody", allowing(), apierrors.IsNotFound, 0},
		{"right to read only", "w", authorizerfactory.NewAlwaysDenyAuthorizer(), apierrors.IsForbidden, 0},
		{"missing, right to read only", "nobody", authorizerfactory.NewAlwaysDenyAuthorizer(), apierrors.IsForbidden, 0},
		{"nobody to ask", "w", nil, apierrors.IsInternalError, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			widgets := &oneWidget{}
			handler, err := newConsole(widgets, tc.a).Connect(consoleContext(t.Context(), tc.widget), tc.widget, nil, nil)
			if !tc.check(err) || (handler == nil) != (err != nil) {
				t.Errorf("got handler %v and error %v (%s)", handler, err, apierrors.ReasonForError(err))
			}
			if got := widgets.reads.Load(); got != tc.reads {
				t.Errorf("widget read %d times, want %d", got, tc.reads)
			}
		})
	}
}

// TestConsoleRight: the question is whether the caller may create the console of this widget.
func TestConsoleRight(t *testing.T) {
	var asked []string
	a := authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		asked = append(asked, strings.Join([]string{a.GetVerb(), a.GetNamespace(), a.GetResource(), a.GetSubresource(), a.GetName()}, " "))
		return authorizer.DecisionAllow, "", nil
	})
	if _, err := newConsole(&oneWidget{}, a).Connect(consoleContext(t.Context(), "w"), "w", nil, nil); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"create demo widgets console w"}, asked); diff != "" {
		t.Errorf("questions (-want +got):\n%s", diff)
	}
}

// TestConsoleShow: the right to create a console is not the right to read its widget. Each show asks for that again, and
// without it the console stays open.
func TestConsoleShow(t *testing.T) {
	var mayGet atomic.Bool
	a := authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		right := strings.Join([]string{a.GetVerb(), a.GetNamespace(), a.GetResource(), a.GetSubresource(), a.GetName()}, " ")
		if right == "create demo widgets console w" || mayGet.Load() && right == "get demo widgets  w" {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "", nil
	})
	widgets := &oneWidget{}
	url, ended := serveConsoles(t, newConsole(widgets, a))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c := openConsole(ctx, t, url)
	for _, allowed := range []bool{false, true, false} {
		mayGet.Store(allowed)
		c.say(t, "show")
		if allowed {
			c.hear(t, c.out, "demo/w: model pendulum, grade Standard, 1 parts, 1 ready")
			continue
		}
		c.hear(t, c.errOut, `widgets.workshop.example.com "w" is forbidden: User "" cannot get resource "widgets" in API group `+
			`"workshop.example.com" in the namespace "demo"`)
	}
	c.say(t, "exit")
	if err := c.end(t); err != nil {
		t.Errorf("got %v, want success", err)
	}
	await(t, "the end of the session", ended)
	if got := widgets.reads.Load(); got != 2 {
		t.Errorf("widget read %d times, want 2: to connect, and for the show that was allowed", got)
	}
}

// TestConsoleWithoutUpgrade: a client that asks as for an object is told how to ask.
func TestConsoleWithoutUpgrade(t *testing.T) {
	url, _ := serveConsoles(t, newConsole(&oneWidget{}, allowing()))
	for name, headers := range map[string]http.Header{
		"none": {}, "SPDY": {"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}}, "no Connection": {"Upgrade": {"websocket"}},
	} {
		t.Run(name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/w", nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header = headers
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			var status metav1.Status
			if err := json.Unmarshal(body, &status); err != nil || resp.StatusCode != http.StatusBadRequest || status.Reason != metav1.StatusReasonBadRequest ||
				!strings.Contains(status.Message, "Sec-WebSocket-Protocol v5.channel.k8s.io") {
				t.Errorf("got %s %s (%v), want 400 BadRequest that names the protocol", resp.Status, body, err)
			}
		})
	}
}

// TestConsoleProtocol: the first protocol that is known is spoken, one that is not is refused with the names of those that are.
func TestConsoleProtocol(t *testing.T) {
	url, ended := serveConsoles(t, newConsole(&oneWidget{}, allowing()))
	for _, protocols := range [][]string{{"v1.channel.k8s.io"}, {"base64.channel.k8s.io"}, {""}, {"v5.channel.k8s.io.evil"}} {
		c := openConsole(t.Context(), t, url, protocols...)
		if err := c.end(t); err == nil || !strings.Contains(err.Error(), "Sec-WebSocket-Protocol v5.channel.k8s.io or v4.channel.k8s.io") {
			t.Errorf("protocols %q: got %v, want an error that names the protocols", protocols, err)
		}
		await(t, "the end of the session", ended)
	}
	c := openConsole(t.Context(), t, url, "v1.channel.k8s.io", "v4.channel.k8s.io", "v5.channel.k8s.io")
	c.say(t, "exit")
	if err := c.end(t); err != nil {
		t.Errorf("known protocols after an unknown one: got %v, want success", err)
	}
}

// TestConsoleEndpoint pins what is served: GET, with no options, of the same kind as the resource.
func TestConsoleEndpoint(t *testing.T) {
	r := newConsole(&oneWidget{}, allowing())
	if diff := cmp.Diff([]string{http.MethodGet}, r.ConnectMethods()); diff != "" {
		t.Errorf("methods (-want +got):\n%s", diff)
	}
	if options, subpath, name := r.NewConnectOptions(); options != nil || subpath || name != "" {
		t.Errorf("options: got %v, subpath %t %q, want none", options, subpath, name)
	}
	if _, ok := r.New().(*workshop.Widget); !ok {
		t.Errorf("new object: got %T, want *workshop.Widget", r.New())
	}
}
