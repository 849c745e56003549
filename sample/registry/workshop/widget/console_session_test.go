// SPDX-License-Identifier: Apache-2.0

package widget

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"

	"example.com/extension-apiserver/sample/apis/workshop"
	"example.com/extension-apiserver/sample/apis/workshop/install"
	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
)

const consoleHelp = "echo WORDS: say them\nshow: the widget as it is now\nexit: leave\n"

// TestConsoleCommands checks the response to each line, and that only exit and the end of the
// input end the session without an error.
func TestConsoleCommands(t *testing.T) {
	longest := "echo " + strings.Repeat("x", maxConsoleLine-len("echo "))
	for _, tc := range []struct {
		name, in, out, errOut string
	}{
		{"nothing", "", "", ""},
		{"empty lines", "\n \t\n\r\n", "", ""},
		{"echo", "echo tick\n", "tick\n", ""},
		{"echo of nothing", "echo\n", "\n", ""},
		{"words", "  echo\ttick   tock \r\n", "tick tock\n", ""},
		{"show", "show\n", "demo/w: model pendulum, grade Standard, 1 parts, 1 ready\n", ""},
		{"help", "help\n", consoleHelp, ""},
		{"unknown command", "dance all night\n", "", "unknown command \"dance\", expected one of:\n" + consoleHelp},
		{"prefix of a command", "ech\n", "", "unknown command \"ech\", expected one of:\n" + consoleHelp},
		{"several", "echo a\nnone\necho b\n", "a\nb\n", "unknown command \"none\", expected one of:\n" + consoleHelp},
		{"nothing after exit", "echo a\nexit\necho b\n", "a\n", ""},
		{"last line without end", "echo a\necho b", "a\nb\n", ""},
		{"longest line", longest + "\necho b\n", strings.TrimPrefix(longest, "echo ") + "\nb\n", ""},
		{"longest line without end", longest, strings.TrimPrefix(longest, "echo ") + "\n", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out, errOut bytes.Buffer
			if err := runConsole(t.Context(), strings.NewReader(tc.in), &out, &errOut, getStored); err != nil {
				t.Errorf("got error %v, want none", err)
			}
			if diff := cmp.Diff(tc.out, out.String()); diff != "" {
				t.Errorf("output (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.errOut, errOut.String()); diff != "" {
				t.Errorf("error output (-want +got):\n%s", diff)
			}
		})
	}
}

func getStored() (*v1.Widget, error) { return stored(), nil }

// TestConsoleHelp checks that help lists each command exactly once.
func TestConsoleHelp(t *testing.T) {
	for _, command := range consoleCommands {
		if strings.Count(consoleHelp, command.help+"\n") != 1 || !strings.HasPrefix(command.help, command.name) {
			t.Errorf("command %s, %q: want its line once in\n%s", command.name, command.help, consoleHelp)
		}
	}
}

// TestConsoleEnds checks that a console that ends before its input reports why, and processes no
// further line.
func TestConsoleEnds(t *testing.T) {
	broken := errors.New("broken")
	gone := apierrors.NewNotFound(workshop.Resource("widgets"), "w")
	for _, tc := range []struct {
		name, in string
		get      func() (*v1.Widget, error)
		out      string
		check    func(error) bool
	}{
		{"line too long", "echo a\n" + strings.Repeat("x", maxConsoleLine+1) + "\necho b\n", getStored, "a\n",
			apierrors.IsBadRequest},
		{"line without end too long", strings.Repeat("x", maxConsoleLine+1), getStored, "", apierrors.IsBadRequest},
		{"the widget is gone", "echo a\nshow\necho b\n", func() (*v1.Widget, error) { return nil, gone }, "a\n",
			apierrors.IsNotFound},
		{"it cannot be read", "show\necho b\n", func() (*v1.Widget, error) { return nil, broken }, "",
			func(err error) bool { return errors.Is(err, broken) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out, errOut bytes.Buffer
			err := runConsole(t.Context(), strings.NewReader(tc.in), &out, &errOut, tc.get)
			if !tc.check(err) {
				t.Errorf("got error %v (%s)", err, apierrors.ReasonForError(err))
			}
			if out.String() != tc.out || errOut.Len() != 0 {
				t.Errorf("got output %q and error output %q, want %q and none", out.String(), errOut.String(), tc.out)
			}
		})
	}
	t.Run("a missing permission", func(t *testing.T) {
		forbidden := apierrors.NewForbidden(workshop.Resource("widgets"), "w", errors.New("no permission to get"))
		var out, errOut bytes.Buffer
		err := runConsole(t.Context(), strings.NewReader("show\necho b\n"), &out, &errOut,
			func() (*v1.Widget, error) { return nil, forbidden })
		if want := forbidden.Error() + "\n"; err != nil || out.String() != "b\n" || errOut.String() != want {
			t.Errorf("got error %v, output %q and error output %q, want none, that of the next line, and %q", err, &out,
				&errOut, want)
		}
	})
	t.Run("the input fails in the middle of a line", func(t *testing.T) {
		var out bytes.Buffer
		err := runConsole(t.Context(), io.MultiReader(strings.NewReader("echo a\necho b"), iotest.ErrReader(broken)),
			&out, &out, getStored)
		if !errors.Is(err, broken) || out.String() != "a\n" {
			t.Errorf("got error %v and output %q, want %v and that of the whole line", err, &out, broken)
		}
	})
	for in, name := range map[string]string{"echo a\necho b\n": "output", "none\necho b\n": "error output"} {
		t.Run(name+" fails", func(t *testing.T) {
			failing := &failingWriter{err: broken}
			if err := runConsole(t.Context(), strings.NewReader(in), failing, failing, getStored); !errors.Is(err,
				broken) || failing.writes != 1 {
				t.Errorf("got error %v after %d writes, want %v after the first", err, failing.writes, broken)
			}
		})
	}
	t.Run("input fails", func(t *testing.T) {
		var out bytes.Buffer
		if err := runConsole(t.Context(), iotest.ErrReader(broken), &out, &out, getStored); !errors.Is(err, broken) {
			t.Errorf("got error %v, want %v", err, broken)
		}
	})
}

type failingWriter struct {
	err    error
	writes int
}

func (w *failingWriter) Write([]byte) (int, error) {
	w.writes++
	return 0, w.err
}

// oneWidget is a store that contains one widget, w.
type oneWidget struct {
	// reads counts the calls of Get. Get calls then first, if it is set.
	reads atomic.Int32
	then  func(ctx context.Context) error
}

func (o *oneWidget) Get(ctx context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	if name != "w" {
		return nil, apierrors.NewNotFound(workshop.Resource("widgets"), name)
	}
	o.reads.Add(1)
	if o.then != nil {
		if err := o.then(ctx); err != nil {
			return nil, err
		}
	}
	return stored(), nil
}

// consoleContext returns the context of a GET request for the console of the widget.
func consoleContext(ctx context.Context, name string) context.Context {
	gv := install.StorageVersion()
	ctx = genericapirequest.WithUser(ctx, &user.DefaultInfo{Name: "jane"})
	return genericapirequest.WithRequestInfo(ctx, &genericapirequest.RequestInfo{
		IsResourceRequest: true, Verb: "get", APIGroup: gv.Group, APIVersion: gv.Version,
		Namespace: "demo", Resource: "widgets", Subresource: "console", Name: name,
	})
}

// TestConsoleShow checks that the permission to create a console does not include reading the
// widget. Each show is authorized again, and a denied one leaves the console open.
func TestConsoleShow(t *testing.T) {
	mayGet := []bool{false, true, false}
	a := authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision,
		string, error) {
		switch strings.Join([]string{a.GetVerb(), a.GetNamespace(), a.GetResource(), a.GetSubresource(), a.GetName()},
			" ") {
		case "create demo widgets console w":
			return authorizer.DecisionAllow, "", nil
		case "get demo widgets  w":
			may := mayGet[0]
			if mayGet = mayGet[1:]; may {
				return authorizer.DecisionAllow, "", nil
			}
		}
		return authorizer.DecisionNoOpinion, "", nil
	})
	widgets := &oneWidget{}
	var out, errOut bytes.Buffer
	in := strings.NewReader(strings.Repeat("show\n", len(mayGet)) + "echo b\n")
	if err := newConsoleSession(widgets, a)(consoleContext(t.Context(), "w"), "w", in, &out, &errOut); err != nil {
		t.Errorf("got %v, want success", err)
	}
	if diff := cmp.Diff("demo/w: model pendulum, grade Standard, 1 parts, 1 ready\nb\n", out.String()); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
	refused := `widgets.workshop.example.com "w" is forbidden: User "jane" cannot get resource "widgets" in API group ` +
		`"workshop.example.com" in the namespace "demo"` + "\n"
	if diff := cmp.Diff(refused+refused, errOut.String()); diff != "" {
		t.Errorf("error output (-want +got):\n%s", diff)
	}
	if got := widgets.reads.Load(); got != 1 {
		t.Errorf("widget read %d times, want once: for the show that was allowed", got)
	}
}

// TestConsoleShowMissing checks that show ends the console if the widget was deleted.
func TestConsoleShowMissing(t *testing.T) {
	var out bytes.Buffer
	session := newConsoleSession(&oneWidget{}, authorizerfactory.NewAlwaysAllowAuthorizer())
	if err := session(consoleContext(t.Context(), "gone"), "gone", strings.NewReader("show\necho b\n"), &out,
		&out); !apierrors.IsNotFound(err) || out.Len() != 0 {
		t.Errorf("got error %v and output %q, want NotFound and none", err, &out)
	}
}

// TestConsoleContextEnds checks that a show that waits for the store ends with its console, and
// that input that the client sent before is not processed any more.
func TestConsoleContextEnds(t *testing.T) {
	ctx, end := context.WithCancel(consoleContext(t.Context(), "w"))
	defer end()
	widgets := &oneWidget{then: func(ctx context.Context) error {
		end()
		<-ctx.Done()
		return nil
	}}
	var out bytes.Buffer
	session := newConsoleSession(widgets, authorizerfactory.NewAlwaysAllowAuthorizer())
	if err := session(ctx, "w", strings.NewReader("show\necho after\n"), &out, &out); !errors.Is(err,
		context.Canceled) {
		t.Errorf("got error %v, want that of the context", err)
	}
	if want := "demo/w: model pendulum, grade Standard, 1 parts, 1 ready\n"; out.String() != want {
		t.Errorf("got output %q, want %q", &out, want)
	}
}
