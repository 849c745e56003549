// SPDX-License-Identifier: Apache-2.0

package widget

import (
	"context"
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
	// stopped ends when the server stops; sessions are those still open.
	stopped  context.Context
	stop     context.CancelFunc
	sessions sync.WaitGroup
}

var _ rest.Connecter = &consoleREST{}

func newConsole(widgets widgetGetter, a authorizer.Authorizer) *consoleREST {
	r := &consoleREST{widgets: widgets, authorizer: a}
	r.stopped, r.stop = context.WithCancel(context.Background())
	return r
}

func (*consoleREST) New() runtime.Object                               { return &workshop.Widget{} }
func (*consoleREST) NewConnectOptions() (runtime.Object, bool, string) { return nil, false, "" }
func (*consoleREST) ConnectMethods() []string                          { return []string{http.MethodGet} }

// Destroy ends the open consoles: the server does not wait for connections that were taken over.
func (r *consoleREST) Destroy() {
	r.stop()
	r.sessions.Wait()
}

// Connect checks what can be checked before the upgrade, so that the client gets a Status and not a broken stream.
func (r *consoleREST) Connect(ctx context.Context, name string, _ runtime.Object, responder rest.Responder) (http.Handler, error) {
	if err := subresource.EnsureAuthorized(ctx, r.authorizer, "create"); err != nil {
		return nil, err
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
		r.sessions.Add(1)
		defer r.sessions.Done()
		r.serve(w, req, get)
	}), nil
}

// serve runs a session until the client leaves, says exit or ends its input, or the server stops.
func (r *consoleREST) serve(w http.ResponseWriter, req *http.Request, get func() (*workshop.Widget, error)) {
	conn := wsstream.NewConn(consoleProtocols)
	conn.SetIdleTimeout(consoleIdleTimeout)
	_, channels, err := conn.Open(w, req)
	if err != nil {
		// The library has answered already: a protocol that is not spoken here.
		return
	}
	defer conn.Close()
	ended := make(chan error, 1)
	go func() { ended <- runConsole(channels[stdin], channels[stdout], channels[stderr], get) }()
	var result error
	select {
	case result = <-ended:
	case <-r.stopped.Done():
		result = apierrors.NewServiceUnavailable("the server is shutting down")
	}
	conn.SetWriteDeadline(consoleCloseTimeout)
	// A client that is gone cannot be told.
	_ = writeStatus(channels[status], result)
}
