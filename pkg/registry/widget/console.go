// SPDX-License-Identifier: Apache-2.0

package widget

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"example.com/extension-apiserver/pkg/apis/workshop"
	"example.com/extension-apiserver/pkg/registry/subresource"
)

const (
	// consoleIdleTimeout ends a console that nobody writes to; as long as the kubelet's default for idle streams.
	consoleIdleTimeout = 4 * time.Hour
	// consoleCloseTimeout is how long a client that does not read may hold up the end of its console.
	consoleCloseTimeout = 5 * time.Second
)

// The channels of remotecommand (KEP-4006), which kubectl exec and client-go speak: v5 tells the end of the input too.
var consoleProtocols = map[string]wsstream.ChannelProtocolConfig{
	"v5.channel.k8s.io": {Binary: true, Channels: consoleChannels},
	"v4.channel.k8s.io": {Binary: true, Channels: consoleChannels},
}

var consoleChannels = []wsstream.ChannelType{wsstream.ReadChannel, wsstream.WriteChannel, wsstream.WriteChannel, wsstream.WriteChannel, wsstream.IgnoreChannel}

// Their numbers: the input, the output, what went wrong, and the Status with which the server ends.
const (
	stdin, stdout, stderr, status = 0, 1, 2, 3
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
	// stopped ends when the server stops; sessions are those still open. The mutex lets none begin after that: the server
	// does not wait for connections that are being taken over either.
	mutex    sync.Mutex
	stopped  context.Context
	stop     context.CancelFunc
	sessions sync.WaitGroup
}

var errStopped = apierrors.NewServiceUnavailable("the server is shutting down")

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

// begin counts a session, which says Done at its end. After Destroy it counts none and returns false.
func (r *consoleREST) begin() bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.stopped.Err() != nil {
		return false
	}
	r.sessions.Add(1)
	return true
}

// Connect checks what can be checked before the upgrade, so that the client gets a Status and not a broken stream.
func (r *consoleREST) Connect(ctx context.Context, name string, _ runtime.Object, responder rest.Responder) (http.Handler, error) {
	if err := subresource.EnsureAuthorized(ctx, r.authorizer, "create"); err != nil {
		return nil, err
	}
	if r.stopped.Err() != nil {
		return nil, errStopped
	}
	get := func() (*workshop.Widget, error) {
		obj, err := r.widgets.Get(ctx, name, &metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		return obj.(*workshop.Widget), nil
	}
	if _, err := get(); err != nil {
		return nil, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !wsstream.IsWebSocketRequest(req) {
			responder.Error(apierrors.NewBadRequest("a console is a WebSocket: expected the headers Connection: Upgrade and Upgrade: websocket, " +
				"and Sec-WebSocket-Protocol v5.channel.k8s.io or v4.channel.k8s.io"))
			return
		}
		if !r.begin() {
			responder.Error(errStopped)
			return
		}
		defer r.sessions.Done()
		r.serve(w, req, get)
	}), nil
}

// serve runs a session until the client leaves, says exit, ends its input or is silent for too long, or the server stops.
func (r *consoleREST) serve(w http.ResponseWriter, req *http.Request, get func() (*workshop.Widget, error)) {
	// Its own idle timeout would move every deadline, that of the last write too.
	conn := wsstream.NewConn(consoleProtocols)
	_, channels, err := conn.Open(w, req)
	if err != nil {
		// The library has answered already: a protocol that is not spoken here.
		return
	}
	defer conn.Close()
	idle := time.NewTimer(consoleIdleTimeout)
	defer idle.Stop()
	ended := make(chan error, 1)
	go func() { ended <- runConsole(heard{channels[stdin], idle}, channels[stdout], channels[stderr], get) }()
	var result error
	select {
	case result = <-ended:
	case <-idle.C:
		result = apierrors.NewTimeoutError(fmt.Sprintf("no input for %s", consoleIdleTimeout), 0)
	case <-r.stopped.Done():
		result = errStopped
	}
	conn.SetWriteDeadline(r.closeTimeout)
	// A client that is gone cannot be told.
	_ = writeStatus(channels[status], result)
}

// heard puts the end of an idle console off when there is input.
type heard struct {
	io.Reader
	idle *time.Timer
}

func (h heard) Read(p []byte) (int, error) {
	n, err := h.Reader.Read(p)
	if err == nil {
		h.idle.Reset(consoleIdleTimeout)
	}
	return n, err
}
