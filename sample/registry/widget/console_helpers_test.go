// SPDX-License-Identifier: Apache-2.0

package widget

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"

	"example.com/extension-apiserver/sample/apis/workshop"
	"example.com/extension-apiserver/sample/install"
)

// patience is how long a test waits for what happens at once.
const patience = 30 * time.Second

// oneWidget is a store with one widget, w.
type oneWidget struct {
	// reads counts the calls of Get; from the second on, which is a command, Get calls then, if set.
	reads atomic.Int32
	then  func(ctx context.Context) error
}

func (o *oneWidget) Get(ctx context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	if name != "w" {
		return nil, apierrors.NewNotFound(workshop.Resource("widgets"), name)
	}
	if o.reads.Add(1) > 1 && o.then != nil {
		if err := o.then(ctx); err != nil {
			return nil, err
		}
	}
	return stored(), nil
}

func allowing() authorizer.Authorizer { return authorizerfactory.NewAlwaysAllowAuthorizer() }

// consoleContext is that of a GET of the console of the widget.
func consoleContext(ctx context.Context, name string) context.Context {
	gv := install.StorageVersion()
	return genericapirequest.WithRequestInfo(ctx, &genericapirequest.RequestInfo{
		IsResourceRequest: true, Verb: "get", APIGroup: gv.Group, APIVersion: gv.Version,
		Namespace: "demo", Resource: "widgets", Subresource: "console", Name: name,
	})
}

// answer is what a handler can answer before the upgrade.
type answer struct{ http.ResponseWriter }

func (a answer) Object(code int, obj runtime.Object) { responsewriters.WriteRawJSON(code, obj, a) }
func (a answer) Error(err error) {
	status := responsewriters.ErrorToAPIStatus(err)
	responsewriters.WriteRawJSON(int(status.Code), status, a)
}

// connectHandler does what the endpoints of the library do with a request for /NAME; each that is through is sent to ended.
// Sessions end with ctx, not with their requests.
func connectHandler(ctx context.Context, r *consoleREST, ended chan<- struct{}) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		name := path.Base(req.URL.Path)
		handler, err := r.Connect(consoleContext(ctx, name), name, nil, answer{w})
		if err != nil {
			answer{w}.Error(err)
			return
		}
		handler.ServeHTTP(w, req)
		ended <- struct{}{}
	})
}

// serveConsoles returns the address of a server of consoles, and where each tells its end.
func serveConsoles(t *testing.T, r *consoleREST) (string, <-chan struct{}) {
	t.Helper()
	ended := make(chan struct{}, 16)
	server := httptest.NewServer(connectHandler(t.Context(), r, ended))
	t.Cleanup(server.Close)
	t.Cleanup(r.Destroy)
	return server.URL, ended
}

// console is an open console with the client that kubectl exec uses.
type console struct {
	in          *io.PipeWriter
	out, errOut *bufio.Scanner
	// ended gets what Stream returned.
	ended chan error
}

func openConsole(ctx context.Context, t *testing.T, url string, protocols ...string) *console {
	t.Helper()
	config := &rest.Config{Host: url}
	executor, err := remotecommand.NewWebSocketExecutor(config, http.MethodGet, url+"/w")
	if len(protocols) > 0 {
		executor, err = remotecommand.NewWebSocketExecutorForProtocols(config, http.MethodGet, url+"/w", protocols...)
	}
	if err != nil {
		t.Fatal(err)
	}
	in, stdin := io.Pipe()
	stdout, out := io.Pipe()
	stderr, errs := io.Pipe()
	c := &console{in: stdin, out: bufio.NewScanner(stdout), errOut: bufio.NewScanner(stderr), ended: make(chan error, 1)}
	go func() {
		err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: in, Stdout: out, Stderr: errs})
		// Whoever still reads or writes is let go.
		in.Close()
		out.Close()
		errs.Close()
		c.ended <- err
	}()
	return c
}

// say sends a line.
func (c *console) say(t *testing.T, line string) {
	t.Helper()
	if _, err := io.WriteString(c.in, line+"\n"); err != nil {
		t.Fatalf("say %q: %v", line, err)
	}
}

// hear reads a line of the output or the error output.
func (c *console) hear(t *testing.T, from *bufio.Scanner, want string) {
	t.Helper()
	if !from.Scan() {
		t.Fatalf("the console ended (%v), want the answer %q", <-c.ended, want)
	}
	if got := from.Text(); got != want {
		t.Errorf("got the answer %q, want %q", got, want)
	}
}

// end waits for the end and returns how the server said it was.
func (c *console) end(t *testing.T) error {
	t.Helper()
	for _, rest := range []*bufio.Scanner{c.out, c.errOut} {
		go func() {
			for rest.Scan() {
			}
		}()
	}
	select {
	case err := <-c.ended:
		return err
	case <-time.After(patience):
		t.Fatalf("the console is open after %s, want it ended", patience)
		return nil
	}
}

// await waits until the channel has something or is closed.
func await[T any](t *testing.T, what string, c <-chan T) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		t.Fatalf("%s: not after %s", what, patience)
	}
}
