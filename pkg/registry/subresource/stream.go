// SPDX-License-Identifier: Apache-2.0

package subresource

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/websocket"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/streaming/pkg/httpstream/wsstream"
)

const (
	// streamIdleTimeout ends a stream that nobody writes to; as long as the kubelet's default for
	// idle streams.
	streamIdleTimeout = 4 * time.Hour
	// streamCloseTimeout is how long a client that does not read, or does not hang up, may hold up
	// the end of its stream.
	streamCloseTimeout = 5 * time.Second
)

// Session talks with the client of a stream about the object of the name, which existed when the stream was opened.
// What it returns is what the client is told at the end: nil is success; an error of the API, such as those of
// k8s.io/apimachinery's api/errors, is its Status, wrapped or not; any other is 500 InternalError with its text.
//
// The context has the caller and the request, so that EnsureAuthorized answers for each further right when it is used:
// the right to create the stream is not the right to get its object. It is done when the context of Connect is, which
// with this kit's server is when the caller lost the right or the server stops; when Destroy is called; and when there
// was no input for 4 hours. Then the session must return, because Destroy waits for it; reading fails at once, writing
// after 5 seconds. The client is told why the context is done instead of what the session returned. A client that left
// does not end the context: reading or writing tells it.
//
// The input is what the client sends. It ends with io.EOF when the client ends it or closes the stream. An error of it
// is to be returned: it is the Status for a message of more than 32 KiB (413) or against the protocol (400), and it
// stays. The sum of what a client sends is not bounded; bound what is kept of it, such as a line. Each write to the
// output or the error output is a message, and waits for a client that reads slowly. Both take writes of several
// goroutines at a time. Nothing may read or write after the session returned.
type Session func(ctx context.Context, name string, in io.Reader, out, errOut io.Writer) error

// NewStream returns the storage of "<resource>/<name>", which connects clients with a session each: a WebSocket with
// the protocols v5.channel.k8s.io and v4.channel.k8s.io of remotecommand (KEP-4006), which kubectl exec and client-go
// speak. The store is that of the main resource. The caller needs the right to create the subresource, beside that to
// get it, with which every WebSocket begins.
//
// What can be refused is refused before the upgrade: without the right (403), after Destroy (503), without the object
// (what Get of the store returns), without the headers of a WebSocket or a known protocol (400).
//
// A session ends as the Session says, when the stream had no input for 4 hours (504), which is the kubelet's default
// for idle streams, and when a message, or a fragment of one, is longer than 1 byte for the channel and 32 KiB (413),
// which is how client-go sends its input. The client is told the Status and has 5 seconds to read it and hang up. The
// size of a terminal, which clients may send, is ignored. Destroy ends the open sessions (503) and waits for them: a
// server waits for no connection that was taken over.
func NewStream(store interface {
	rest.Storage
	rest.Getter
}, a authorizer.Authorizer, name string, session Session) rest.Storage {
	r := &streamREST{newObject: store.New, objects: store, authorizer: a, subresource: name, session: session,
		closeTimeout: streamCloseTimeout}
	r.stopped, r.stop = context.WithCancel(context.Background())
	return r
}

// streamREST connects a WebSocket to an object.
type streamREST struct {
	newObject   func() runtime.Object
	objects     rest.Getter
	authorizer  authorizer.Authorizer
	subresource string
	session     Session
	// closeTimeout is streamCloseTimeout, less in tests.
	closeTimeout time.Duration
	// stopped ends when the server stops; sessions are those still open. The mutex lets none begin
	// after that: the server does not wait for connections that are being taken over either.
	mutex    sync.Mutex
	stopped  context.Context
	stop     context.CancelFunc
	sessions sync.WaitGroup
}

var (
	errStopped = apierrors.NewServiceUnavailable("the server is shutting down")
	errEnded   = apierrors.NewServiceUnavailable("the session was ended by the server")
)

var _ rest.Connecter = &streamREST{}

// New returns an object of the main resource, whose kind discovery shows.
func (r *streamREST) New() runtime.Object                             { return r.newObject() }
func (*streamREST) NewConnectOptions() (runtime.Object, bool, string) { return nil, false, "" }
func (*streamREST) ConnectMethods() []string                          { return []string{http.MethodGet} }

// Destroy ends the open streams: the server does not wait for connections that were taken over.
func (r *streamREST) Destroy() {
	r.mutex.Lock()
	r.stop()
	r.mutex.Unlock()
	r.sessions.Wait()
}

// begin counts a session, which says Done at its end. After Destroy it counts none and returns
// false.
func (r *streamREST) begin() bool {
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
func (r *streamREST) Connect(ctx context.Context, name string, _ runtime.Object,
	responder rest.Responder) (http.Handler, error) {
	if err := EnsureAuthorized(ctx, r.authorizer, "create", r.subresource); err != nil {
		return nil, err
	}
	if r.stopped.Err() != nil {
		return nil, errStopped
	}
	if _, err := r.objects.Get(ctx, name, &metav1.GetOptions{}); err != nil {
		return nil, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		protocol := selectProtocol(req.Header.Get(wsstream.WebSocketProtocolHeader))
		if !wsstream.IsWebSocketRequest(req) || protocol == "" {
			responder.Error(apierrors.NewBadRequest(fmt.Sprintf(
				"%s is a WebSocket: expected the headers Connection: Upgrade and Upgrade: websocket, "+
					"and Sec-WebSocket-Protocol %s", r.subresource, strings.Join(streamProtocols, " or "))))
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

// serve runs a session until it ends by itself, until it has no input for too long, until ctx is
// done, or until the server stops.
func (r *streamREST) serve(ctx context.Context, ws *websocket.Conn, name string) {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer context.AfterFunc(r.stopped, func() { end(errStopped) })()
	idle := time.AfterFunc(streamIdleTimeout, func() {
		end(apierrors.NewTimeoutError(fmt.Sprintf("no input for %s", streamIdleTimeout), 0))
	})
	defer idle.Stop()
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(interrupted)
		_ = ws.SetReadDeadline(time.Now())
		_ = ws.SetWriteDeadline(time.Now().Add(r.closeTimeout))
	})
	in := newStreamInput(ws, func() { idle.Reset(streamIdleTimeout) })
	result := r.session(ctx, name, in, streamOutput{ws, remotecommand.StreamStdOut},
		streamOutput{ws, remotecommand.StreamStdErr})
	if stop() {
		_ = ws.SetWriteDeadline(time.Now().Add(r.closeTimeout))
	} else {
		<-interrupted
		result = reasonFor(ctx)
	}
	r.close(ws, result)
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
func (r *streamREST) close(ws *websocket.Conn, result error) {
	const normalClosure = 1000
	_ = ws.SetReadDeadline(time.Now().Add(r.closeTimeout))
	if writeStatus(streamOutput{ws, remotecommand.StreamErr}, result) == nil && ws.WriteClose(normalClosure) == nil {
		_, _ = io.Copy(io.Discard, ws)
	}
}

// writeStatus tells the client how the session ended, in the form that remotecommand expects.
func writeStatus(w io.Writer, result error) error {
	status := &metav1.Status{Status: metav1.StatusSuccess}
	if result != nil {
		var known apierrors.APIStatus
		if !errors.As(result, &known) {
			known = apierrors.NewInternalError(result)
		}
		s := known.Status()
		status = &s
	}
	data, err := json.Marshal(status)
	if err != nil {
		return err
	}
	_, err = w.Write(data)
	return err
}
