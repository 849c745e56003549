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
	// streamIdleTimeout ends a stream without input. It equals the kubelet's default for idle
	// streams.
	streamIdleTimeout = 4 * time.Hour
	// streamCloseTimeout limits how long a client that does not read, or does not close the
	// connection, can delay the end of its stream.
	streamCloseTimeout = 5 * time.Second
)

// Session serves one client of a stream for the object with the given name. The object existed
// when the stream was opened. The client receives the result: nil is success, an API error such
// as those of k8s.io/apimachinery's api/errors is its Status, wrapped or not, and any other error
// is 500 InternalError with its text.
//
// The context has the caller and the request. Call EnsureAuthorized whenever the session uses a
// further permission: the permission to create the stream does not include the permission to get
// its object. The context is done when the context of Connect is done, when Destroy is called,
// and after 4 hours without input. In a server of pkg/apiserver, the context of Connect is done
// when the caller loses the permission or the server stops. Then the session must return, because
// Destroy waits for it. Reads fail at once, writes after 5 seconds. The client then receives the
// cause of the context instead of the result of the session. The context is not done when a
// client disconnects: reads and writes return an error instead.
//
// The input is the data that the client sends. It ends with io.EOF when the client ends the input
// or closes the stream. The session should return an error of the input: it is the Status for a
// message of more than 32 KiB (413) or a protocol error (400), and further reads return it again.
// The total size of the input is not limited, so limit what the session buffers, such as a line.
// Each write to the output or the error output is a message, and waits for a client that reads
// slowly. Both support concurrent writes. The session must not read or write after it has
// returned.
type Session func(ctx context.Context, name string, in io.Reader, out, errOut io.Writer) error

// NewStream returns the storage of "<resource>/<name>", which runs a session for each client. The
// connection is a WebSocket with the protocols v5.channel.k8s.io and v4.channel.k8s.io of
// remotecommand (KEP-4006), which kubectl exec and client-go support. The store is that of the
// main resource. The caller needs permission to create the subresource, and permission to get it,
// because every WebSocket begins with a GET.
//
// Errors that can be detected before the upgrade are returned before it: 403 without the
// permission, 503 after Destroy, the error of the store's Get if the object does not exist, and
// 400 without the headers of a WebSocket or a supported protocol.
//
// A session ends as described at Session, after 4 hours without input (504), which is the
// kubelet's default for idle streams, and when a message or a fragment is longer than 1 byte for
// the channel and 32 KiB (413), the size in which client-go sends its input. The client receives
// the Status and has 5 seconds to read it and close the connection. Terminal sizes, which clients
// may send, are ignored. Destroy ends the open sessions (503) and waits for them, because the
// HTTP server does not wait for hijacked connections.
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
	// closeTimeout is streamCloseTimeout, or less in tests.
	closeTimeout time.Duration
	// stopped is done when the server stops. sessions counts the open sessions. The mutex
	// prevents sessions from beginning after stop, because the HTTP server does not wait for
	// connections that are being hijacked.
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

// Destroy ends the open streams and waits for them, because the HTTP server does not wait for
// hijacked connections.
func (r *streamREST) Destroy() {
	r.mutex.Lock()
	r.stop()
	r.mutex.Unlock()
	r.sessions.Wait()
}

// begin adds a session to sessions; the caller must call Done at its end. After Destroy, it adds
// none and returns false.
func (r *streamREST) begin() bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.stopped.Err() != nil {
		return false
	}
	r.sessions.Add(1)
	return true
}

// Connect performs all checks that are possible before the upgrade, so that the client receives a
// Status and not a broken stream. The session ends with ctx, which is not the context of the
// request.
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
		// wsstream.Conn is not used, because it reads messages of up to 32 MiB into memory.
		websocket.Server{
			Handshake: func(config *websocket.Config, _ *http.Request) error {
				config.Protocol = []string{protocol}
				return nil
			},
			Handler: func(ws *websocket.Conn) { r.serve(ctx, ws, name) },
		}.ServeHTTP(w, req)
	}), nil
}

// serve runs a session until it returns, until it has had no input for too long, until ctx is
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

// reasonFor returns the cause of ctx if it is an API status, and otherwise an error without
// internal details.
func reasonFor(ctx context.Context) error {
	cause := context.Cause(ctx)
	if status := apierrors.APIStatus(nil); errors.As(cause, &status) {
		return cause
	}
	return errEnded
}

// close sends the Status to the client and waits until the client closes the connection. Closing
// a connection with unread input resets it, and the client may lose the Status (RFC 6455, section
// 7.1.1).
func (r *streamREST) close(ws *websocket.Conn, result error) {
	const normalClosure = 1000
	_ = ws.SetReadDeadline(time.Now().Add(r.closeTimeout))
	if writeStatus(streamOutput{ws, remotecommand.StreamErr}, result) == nil && ws.WriteClose(normalClosure) == nil {
		_, _ = io.Copy(io.Discard, ws)
	}
}

// writeStatus sends the result of the session to the client in the format that remotecommand
// expects.
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
