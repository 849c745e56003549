// SPDX-License-Identifier: Apache-2.0

package widget

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/websocket"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"example.com/extension-apiserver/pkg/registry/subresource"
	"example.com/extension-apiserver/sample/apis/workshop"
)

const (
	// consoleIdleTimeout ends a console that nobody writes to; as long as the kubelet's default for
	// idle streams.
	consoleIdleTimeout = 4 * time.Hour
	// consoleCloseTimeout is how long a client that does not read, or does not hang up, may hold up
	// the end of its console.
	consoleCloseTimeout = 5 * time.Second
)

// widgetGetter is what a console needs of the store.
type widgetGetter interface {
	Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error)
}

// consoleREST connects a WebSocket to a widget: the sample of a streaming subresource.
type consoleREST struct {
	widgets    widgetGetter
	authorizer authorizer.Authorizer
	// closeTimeout is consoleCloseTimeout, less in tests.
	closeTimeout time.Duration
	// stopped ends when the server stops; sessions are those still open. The mutex lets none begin
	// after that: the server does not wait for connections that are being taken over either.
	mutex    sync.Mutex
	stopped  context.Context
	stop     context.CancelFunc
	sessions sync.WaitGroup
}

var (
	errStopped    = apierrors.NewServiceUnavailable("the server is shutting down")
	errEnded      = apierrors.NewServiceUnavailable("the session was ended by the server")
	errNoChannels = apierrors.NewBadRequest("a console is a WebSocket: expected the headers Connection: Upgrade and Upgrade: websocket, " +
		"and Sec-WebSocket-Protocol " + strings.Join(consoleProtocols, " or "))
)

var _ rest.Connecter = &consoleREST{}

func newConsole(widgets widgetGetter, a authorizer.Authorizer) *consoleREST {
	r := &consoleREST{widgets: widgets, authorizer: a, closeTimeout: consoleCloseTimeout}
	r.stopped, r.stop = context.WithCancel(context.Background())
	return r
}

func (*consoleREST) New() runtime.Object                               { return &workshop.Widget{} }
func (*consoleREST) NewConnectOptions() (runtime.Object, bool, string) { return nil, false, "" }
func (*consoleREST) ConnectMethods() []string                          { return []string{http.MethodGet} }

// Destroy ends the open consoles: the server does not wait for connections that were taken over.
func (r *consoleREST) Destroy() {
	r.mutex.Lock()
	r.stop()
	r.mutex.Unlock()
	r.sessions.Wait()
}

// begin counts a session, which says Done at its end. After Destroy it counts none and returns
// false.
func (r *consoleREST) begin() bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.stopped.Err() != nil {
		return false
	}
	r.sessions.Add(1)
	return true
}

// Connect checks what can be checked before the upgrade, so that the client gets a Status and not a
// broken stream. The session ends with ctx, which is not that of the request.
func (r *consoleREST) Connect(ctx context.Context, name string, _ runtime.Object, responder rest.Responder) (http.Handler, error) {
	if err := subresource.EnsureAuthorized(ctx, r.authorizer, "create", "console"); err != nil {
		return nil, err
	}
	if r.stopped.Err() != nil {
		return nil, errStopped
	}
	if _, err := r.widgets.Get(ctx, name, &metav1.GetOptions{}); err != nil {
		return nil, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		protocol := selectProtocol(req.Header.Get(wsstream.WebSocketProtocolHeader))
		if !wsstream.IsWebSocketRequest(req) || protocol == "" {
			responder.Error(errNoChannels)
			return
		}
		if !r.begin() {
			responder.Error(errStopped)
			return
		}
		defer r.sessions.Done()
		// Not wsstream.Conn: it reads messages of up to 32 MiB into memory.
		websocket.Server{
			Handshake: func(config *websocket.Config, _ *http.Request) error {
				config.Protocol = []string{protocol}
				return nil
			},
			Handler: func(ws *websocket.Conn) { r.serve(ctx, ws, name) },
		}.ServeHTTP(w, req)
	}), nil
}

// selectProtocol returns the first offered protocol that a console speaks, "" for none.
func selectProtocol(offered string) string {
	for protocol := range strings.SplitSeq(offered, ",") {
		if protocol = strings.TrimSpace(protocol); slices.Contains(consoleProtocols, protocol) {
			return protocol
		}
	}
	return ""
}

// serve runs a session until the client leaves, says exit, ends its input or is silent for too
// long, until ctx is done, or until the server stops.
func (r *consoleREST) serve(ctx context.Context, ws *websocket.Conn, name string) {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer context.AfterFunc(r.stopped, func() { end(errStopped) })()
	idle := time.AfterFunc(consoleIdleTimeout, func() {
		end(apierrors.NewTimeoutError(fmt.Sprintf("no input for %s", consoleIdleTimeout), 0))
	})
	defer idle.Stop()
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(interrupted)
		_ = ws.SetReadDeadline(time.Now())
		_ = ws.SetWriteDeadline(time.Now().Add(r.closeTimeout))
	})
	in := newConsoleInput(ws, func() { idle.Reset(consoleIdleTimeout) })
	result := runConsole(ctx, in, consoleOutput{ws, stdout}, consoleOutput{ws, stderr}, func() (*workshop.Widget, error) {
		return r.show(ctx, name)
	})
	if stop() {
		_ = ws.SetWriteDeadline(time.Now().Add(r.closeTimeout))
	} else {
		<-interrupted
		result = reasonFor(ctx)
	}
	r.close(ws, result)
}

// show reads the widget by the caller's right to get it, which the right to create its console does
// not include.
func (r *consoleREST) show(ctx context.Context, name string) (*workshop.Widget, error) {
	if err := subresource.EnsureAuthorized(ctx, r.authorizer, "get", ""); err != nil {
		return nil, err
	}
	obj, err := r.widgets.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return obj.(*workshop.Widget), nil
}

// reasonFor returns why the session was ended, as a client may know it.
func reasonFor(ctx context.Context) error {
	cause := context.Cause(ctx)
	if status := apierrors.APIStatus(nil); errors.As(cause, &status) {
		return cause
	}
	return errEnded
}

// close tells the client how the session ended, and waits for its end of the connection: closing
// one with unread input resets it, and the client may lose the Status (RFC 6455, section 7.1.1). A
// client that is gone cannot be told.
func (r *consoleREST) close(ws *websocket.Conn, result error) {
	const normalClosure = 1000
	_ = ws.SetReadDeadline(time.Now().Add(r.closeTimeout))
	if writeStatus(consoleOutput{ws, status}, result) == nil && ws.WriteClose(normalClosure) == nil {
		_, _ = io.Copy(io.Discard, ws)
	}
}
