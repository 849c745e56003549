// SPDX-License-Identifier: Apache-2.0

package subresource

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
)

// TestStream: a session with the client that kubectl exec uses, for each way in which it can end.
func TestStream(t *testing.T) {
	gone := apierrors.NewNotFound(workshop.Resource("gadgets"), "g")
	for _, tc := range []struct {
		name      string
		protocols []string
		talk      func(t *testing.T, c *streamClient)
		// want is the message of the Status that the server sends, "" for success.
		want string
	}{
		{"exit", nil, func(t *testing.T, c *streamClient) {
			c.say(t, "echo tick")
			c.hear(t, c.out, "tick")
			c.say(t, "dance")
			c.hear(t, c.errOut, `unknown command "dance"`)
			c.say(t, "echo tock")
			c.hear(t, c.out, "tock")
			c.say(t, "exit")
		}, ""},
		{"exit, the older protocol", []string{"v4.channel.k8s.io"}, func(t *testing.T, c *streamClient) {
			c.say(t, "echo tick")
			c.hear(t, c.out, "tick")
			c.say(t, "exit")
		}, ""},
		{"end of the input", nil, func(t *testing.T, c *streamClient) {
			c.say(t, "echo tick")
			c.hear(t, c.out, "tick")
			if err := c.in.Close(); err != nil {
				t.Error(err)
			}
		}, ""},
		{"line too long", nil, func(t *testing.T, c *streamClient) { c.say(t, strings.Repeat("x", maxLine+1)) },
			"a line is longer than 4096 bytes"},
		{"the gadget is gone", nil, func(t *testing.T, c *streamClient) { c.say(t, "show") }, gone.Error()},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newStream(&oneGadget{show: func(context.Context) error { return gone }}, allowing())
			url, ended := serveStreams(t, r)
			c := openStream(t.Context(), t, url, tc.protocols...)
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

// TestStreamClientLeaves: a session ends when its client disconnects without closing the stream,
// even while the server writes.
func TestStreamClientLeaves(t *testing.T) {
	for name, line := range map[string]string{"silent": "", "in the middle of a command": "echo " +
		strings.Repeat("x", 4000)} {
		t.Run(name, func(t *testing.T) {
			r := newStream(&oneGadget{}, allowing())
			url, ended := serveStreams(t, r)
			ctx, leave := context.WithCancel(t.Context())
			c := openStream(ctx, t, url)
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

// TestStreamConnect: errors are returned as a Status before the upgrade, and the object is not
// read for unauthorized callers.
func TestStreamConnect(t *testing.T) {
	for _, tc := range []struct {
		name, gadget string
		a            authorizer.Authorizer
		check        func(error) bool
		reads        int32
	}{
		{"allowed", "g", allowing(), func(err error) bool { return err == nil }, 1},
		{"missing", "nobody", allowing(), apierrors.IsNotFound, 0},
		{"only permission to read", "g", authorizerfactory.NewAlwaysDenyAuthorizer(), apierrors.IsForbidden, 0},
		{"missing, only permission to read", "nobody", authorizerfactory.NewAlwaysDenyAuthorizer(),
			apierrors.IsForbidden, 0},
		{"nobody to ask", "g", nil, apierrors.IsInternalError, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			gadgets := &oneGadget{}
			handler, err := newStream(gadgets, tc.a).Connect(streamContext(t.Context(), tc.gadget), tc.gadget, nil, nil)
			if !tc.check(err) || (handler == nil) != (err != nil) {
				t.Errorf("got handler %v and error %v (%s)", handler, err, apierrors.ReasonForError(err))
			}
			if got := gadgets.reads.Load(); got != tc.reads {
				t.Errorf("gadget read %d times, want %d", got, tc.reads)
			}
		})
	}
}

// TestStreamPermission: the authorizer is called once, for the verb create on the stream of this
// gadget.
func TestStreamPermission(t *testing.T) {
	var asked []string
	a := authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision,
		string, error) {
		asked = append(asked, strings.Join([]string{a.GetVerb(), a.GetNamespace(), a.GetResource(), a.GetSubresource(),
			a.GetName()}, " "))
		return authorizer.DecisionAllow, "", nil
	})
	if _, err := newStream(&oneGadget{}, a).Connect(streamContext(t.Context(), "g"), "g", nil, nil); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"create demo gadgets console g"}, asked); diff != "" {
		t.Errorf("questions (-want +got):\n%s", diff)
	}
}

// TestStreamFurtherPermission: a session can check a further permission of its caller each time it
// uses it, and the client receives the error that the session returns.
func TestStreamFurtherPermission(t *testing.T) {
	var mayGet atomic.Bool
	a := authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision,
		string, error) {
		permission := strings.Join([]string{a.GetVerb(), a.GetNamespace(), a.GetResource(), a.GetSubresource(), a.GetName()},
			" ")
		if permission == "create demo gadgets console g" || mayGet.Load() && permission == "get demo gadgets  g" {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "", nil
	})
	mayGet.Store(true)
	gadgets := &oneGadget{show: func(ctx context.Context) error { return EnsureAuthorized(ctx, a, "get", "") }}
	url, ended := serveStreams(t, newStream(gadgets, a))
	c := openStream(t.Context(), t, url)
	c.say(t, "show")
	c.hear(t, c.out, "gadget g")
	mayGet.Store(false)
	c.say(t, "show")
	want := `gadgets.workshop.example.com "g" is forbidden: User "jane" cannot get resource "gadgets" in API group "workshop.example.com" in the namespace "demo"`
	if err := c.end(t); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	await(t, "the end of the session", ended)
}

// TestStreamWithoutUpgrade: a request without the headers of a WebSocket returns 400 with the
// expected headers.
func TestStreamWithoutUpgrade(t *testing.T) {
	const want = "console is a WebSocket: expected the headers Connection: Upgrade and Upgrade: websocket, " +
		"and Sec-WebSocket-Protocol v5.channel.k8s.io or v4.channel.k8s.io"
	url, _ := serveStreams(t, newStream(&oneGadget{}, allowing()))
	for name, headers := range map[string]http.Header{
		"none": {}, "SPDY": {"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}},
		"no Connection": {"Upgrade": {"websocket"}},
	} {
		t.Run(name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/g", nil)
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
			if err := json.Unmarshal(body, &status); err != nil || resp.StatusCode != http.StatusBadRequest ||
				status.Reason != metav1.StatusReasonBadRequest ||
				status.Message != want {
				t.Errorf("got %s %s (%v), want 400 BadRequest with %q", resp.Status, body, err, want)
			}
		})
	}
}

// TestStreamProtocol: the server selects the first supported protocol, and rejects requests
// without one with the names of the supported protocols.
func TestStreamProtocol(t *testing.T) {
	url, ended := serveStreams(t, newStream(&oneGadget{}, allowing()))
	for _, protocols := range [][]string{{"v1.channel.k8s.io"}, {"base64.channel.k8s.io"}, {""},
		{"v5.channel.k8s.io.evil"}} {
		c := openStream(t.Context(), t, url, protocols...)
		if err := c.end(t); err == nil || !strings.Contains(err.Error(),
			"Sec-WebSocket-Protocol v5.channel.k8s.io or v4.channel.k8s.io") {
			t.Errorf("protocols %q: got %v, want an error that names the protocols", protocols, err)
		}
		await(t, "the end of the session", ended)
	}
	c := openStream(t.Context(), t, url, "v1.channel.k8s.io", "v4.channel.k8s.io", "v5.channel.k8s.io")
	c.say(t, "exit")
	if err := c.end(t); err != nil {
		t.Errorf("known protocols after an unknown one: got %v, want success", err)
	}
}

// TestStreamEndpoint: the stream is served with GET, without options, and has the kind of the
// resource.
func TestStreamEndpoint(t *testing.T) {
	r := newStream(&oneGadget{}, allowing())
	if diff := cmp.Diff([]string{http.MethodGet}, r.ConnectMethods()); diff != "" {
		t.Errorf("methods (-want +got):\n%s", diff)
	}
	if options, subpath, name := r.NewConnectOptions(); options != nil || subpath || name != "" {
		t.Errorf("options: got %v, subpath %t %q, want none", options, subpath, name)
	}
	if _, ok := r.New().(*v1.Gadget); !ok {
		t.Errorf("new object: got %T, want *v1.Gadget", r.New())
	}
}

// TestStreamStatus: the result of a stream is sent as a Status, in which API errors keep their
// reason.
func TestStreamStatus(t *testing.T) {
	gone := apierrors.NewNotFound(workshop.Resource("gadgets"), "g")
	for _, tc := range []struct {
		name   string
		result error
		want   metav1.Status
	}{
		{"success", nil, metav1.Status{Status: metav1.StatusSuccess}},
		{"error of the API", gone, gone.ErrStatus},
		{"wrapped", fmt.Errorf("show: %w", gone), gone.ErrStatus},
		{"any other", errors.New("broken"), apierrors.NewInternalError(errors.New("broken")).ErrStatus},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out bytes.Buffer
			if err := writeStatus(&out, tc.result); err != nil {
				t.Fatal(err)
			}
			var got metav1.Status
			if err := json.Unmarshal(out.Bytes(), &got); err != nil {
				t.Fatalf("%v in %s", err, &out)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
		})
	}
}
