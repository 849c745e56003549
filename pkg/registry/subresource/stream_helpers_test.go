// SPDX-License-Identifier: Apache-2.0

package subresource

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"

	"example.com/extension-apiserver/sample/apis/workshop"
	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
)

// patience is the timeout of a test for events that normally happen at once.
const patience = 30 * time.Second

// maxLine is the maximum length in bytes of a line in oneGadget's sessions.
const maxLine = 4096

// oneGadget is a store with one gadget, g, and the session of its stream.
type oneGadget struct {
	// reads counts the calls of Get.
	reads atomic.Int32
	// show, if set, runs before the command show responds.
	show func(ctx context.Context) error
}

func (*oneGadget) New() runtime.Object { return &v1.Gadget{} }
func (*oneGadget) Destroy()            {}

func (o *oneGadget) Get(_ context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	if name != "g" {
		return nil, apierrors.NewNotFound(workshop.Resource("gadgets"), name)
	}
	o.reads.Add(1)
	return &v1.Gadget{ObjectMeta: metav1.ObjectMeta{Name: name}}, nil
}

// session responds to each line of the input until the input ends, until the line exit, or until
// ctx is done.
func (o *oneGadget) session(ctx context.Context, name string, in io.Reader, out, errOut io.Writer) error {
	lines := bufio.NewReaderSize(in, maxLine+len("\n"))
	for ctx.Err() == nil {
		line, err := lines.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			return apierrors.NewBadRequest(fmt.Sprintf("a line is longer than %d bytes", maxLine))
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if words := strings.Fields(string(line)); len(words) > 0 {
			if words[0] == "exit" {
				return nil
			}
			if err := o.command(ctx, name, words, out, errOut); err != nil {
				return err
			}
		}
		if err != nil {
			return nil
		}
	}
	return ctx.Err()
}

func (o *oneGadget) command(ctx context.Context, name string, words []string, out, errOut io.Writer) error {
	var err error
	switch words[0] {
	case "echo":
		_, err = fmt.Fprintln(out, strings.Join(words[1:], " "))
	case "show":
		if o.show != nil {
			if err := o.show(ctx); err != nil {
				return err
			}
		}
		_, err = fmt.Fprintln(out, "gadget", name)
	default:
		_, err = fmt.Fprintf(errOut, "unknown command %q\n", words[0])
	}
	return err
}

// newStream returns the storage of the streams of the gadget.
func newStream(gadgets *oneGadget, a authorizer.Authorizer) *streamREST {
	return NewStream(gadgets, a, "console", gadgets.session).(*streamREST)
}

func allowing() authorizer.Authorizer { return authorizerfactory.NewAlwaysAllowAuthorizer() }

// streamContext returns the context of a GET of the stream of a gadget.
func streamContext(ctx context.Context, name string) context.Context {
	ctx = genericapirequest.WithUser(ctx, &user.DefaultInfo{Name: "jane"})
	return genericapirequest.WithRequestInfo(ctx, &genericapirequest.RequestInfo{
		IsResourceRequest: true, Verb: "get", APIGroup: group, APIVersion: "v1",
		Namespace: "demo", Resource: "gadgets", Subresource: "console", Name: name,
	})
}

// refusal is the responder of a handler before the upgrade.
type refusal struct{ http.ResponseWriter }

func (r refusal) Object(code int, obj runtime.Object) { responsewriters.WriteRawJSON(code, obj, r) }
func (r refusal) Error(err error) {
	status := responsewriters.ErrorToAPIStatus(err)
	responsewriters.WriteRawJSON(int(status.Code), status, r)
}

// connectHandler handles a request for /NAME like the library. It sends to ended after each
// request. Sessions end with ctx, not with their requests.
func connectHandler(ctx context.Context, r *streamREST, ended chan<- struct{}) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		name := path.Base(req.URL.Path)
		handler, err := r.Connect(streamContext(ctx, name), name, nil, refusal{w})
		if err != nil {
			refusal{w}.Error(err)
			return
		}
		handler.ServeHTTP(w, req)
		ended <- struct{}{}
	})
}

// serveStreams returns the address of a stream server and a channel that receives a value at the
// end of each stream.
func serveStreams(t *testing.T, r *streamREST) (string, <-chan struct{}) {
	t.Helper()
	ended := make(chan struct{}, 16)
	server := httptest.NewServer(connectHandler(t.Context(), r, ended))
	t.Cleanup(server.Close)
	t.Cleanup(r.Destroy)
	return server.URL, ended
}

// streamClient is an open stream of the client that kubectl exec uses.
type streamClient struct {
	in          *io.PipeWriter
	out, errOut *bufio.Scanner
	// ended receives the result of StreamWithContext.
	ended chan error
}

func openStream(ctx context.Context, t *testing.T, url string, protocols ...string) *streamClient {
	t.Helper()
	config := &rest.Config{Host: url}
	executor, err := remotecommand.NewWebSocketExecutor(config, http.MethodGet, url+"/g")
	if len(protocols) > 0 {
		executor, err = remotecommand.NewWebSocketExecutorForProtocols(config, http.MethodGet, url+"/g", protocols...)
	}
	if err != nil {
		t.Fatal(err)
	}
	in, stdin := io.Pipe()
	stdout, out := io.Pipe()
	stderr, errs := io.Pipe()
	c := &streamClient{in: stdin, out: bufio.NewScanner(stdout), errOut: bufio.NewScanner(stderr),
		ended: make(chan error, 1)}
	go func() {
		err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: in, Stdout: out, Stderr: errs})
		// Unblock pending reads and writes.
		in.Close()
		out.Close()
		errs.Close()
		c.ended <- err
	}()
	return c
}

// say sends a line.
func (c *streamClient) say(t *testing.T, line string) {
	t.Helper()
	if _, err := io.WriteString(c.in, line+"\n"); err != nil {
		t.Fatalf("say %q: %v", line, err)
	}
}

// hear reads a line of the output or the error output and compares it with want.
func (c *streamClient) hear(t *testing.T, from *bufio.Scanner, want string) {
	t.Helper()
	if !from.Scan() {
		t.Fatalf("the stream ended (%v), want the response %q", <-c.ended, want)
	}
	if got := from.Text(); got != want {
		t.Errorf("got the response %q, want %q", got, want)
	}
}

// end waits for the end of the stream and returns the result that the server sent.
func (c *streamClient) end(t *testing.T) error {
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
		t.Fatalf("the stream is open after %s, want it ended", patience)
		return nil
	}
}

// await waits until the channel receives a value or is closed.
func await[T any](t *testing.T, what string, c <-chan T) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		t.Fatalf("%s: not after %s", what, patience)
	}
}
