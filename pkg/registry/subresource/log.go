// SPDX-License-Identifier: Apache-2.0

package subresource

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream"
)

// logBegins is the delay after which the response to a log request begins if nothing was written.
const logBegins = time.Second

// WriteLog writes the log of an object. options are the query options, of the type that
// newOptions of NewLog returns.
//
// Each write is sent at once and waits up to a minute for a client that reads slowly. At most one
// write is in memory. A write fails when the client has disconnected or the context is done. The
// context is done when the client has disconnected, when the caller has lost the permission, and
// when the server stops. Then the function must return. A function that follows returns nil when
// its source ends.
//
// An error before the first write and within one second becomes the response: an error of
// k8s.io/apimachinery/pkg/api/errors with its status, any other error with 500. After that, an
// error aborts the response, so that the client does not treat it as a complete log. The server
// logs the error.
type WriteLog func(ctx context.Context, obj, options runtime.Object, w io.Writer) error

// NewLog returns the storage of "<resource>/log": a GET with a text response. objects is the
// storage of the main resource. In a server of pkg/apiserver, a log counts as a watch towards the
// limit --max-watches-per-user. It ends within 46 s after the user loses the permission to get
// the subresource, or one minute later if the client does not read. It has no timeout.
func NewLog(objects interface {
	rest.Storage
	rest.Getter
}, newOptions func() runtime.Object, write WriteLog) rest.Storage {
	return &logREST{objects, newOptions, write}
}

type logREST struct {
	objects interface {
		rest.Storage
		rest.Getter
	}
	newOptions func() runtime.Object
	write      WriteLog
}

var _ rest.Connecter = &logREST{}

// New returns an object of the main resource, whose kind discovery shows.
func (r *logREST) New() runtime.Object { return r.objects.New() }

// Destroy does nothing: the store belongs to the main resource.
func (*logREST) Destroy() {}

// NewConnectOptions implements rest.Connecter.
func (r *logREST) NewConnectOptions() (runtime.Object, bool, string) {
	return r.newOptions(), false, ""
}

// ConnectMethods implements rest.Connecter.
func (*logREST) ConnectMethods() []string { return []string{http.MethodGet} }

// ProducesMIMETypes implements rest.StorageMetadata.
func (*logREST) ProducesMIMETypes(string) []string { return []string{"text/plain"} }

// ProducesObject implements rest.StorageMetadata.
func (*logREST) ProducesObject(string) any { return "" }

// Connect implements rest.Connecter.
func (r *logREST) Connect(ctx context.Context, name string, options runtime.Object,
	responder rest.Responder) (http.Handler, error) {
	obj, err := r.objects.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if httpstream.IsUpgradeRequest(req) {
			responder.Error(apierrors.NewBadRequest("a log is read with a GET without the header Upgrade"))
			return
		}
		out := &logWriter{ctx: ctx, w: w}
		begin := time.AfterFunc(logBegins, out.begin)
		defer func() {
			begin.Stop()
			out.leave() // also after a panic: the timer may already be running
		}()
		out.end(r.write(ctx, obj, options, out), responder)
	}), nil
}

// logWriter flushes each write to the client.
type logWriter struct {
	ctx   context.Context // of the request
	mutex sync.Mutex
	w     http.ResponseWriter
	begun bool
	ended bool
}

// begin sends the header.
func (l *logWriter) begin() {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.header()
	l.flush()
}

func (l *logWriter) header() {
	if l.begun || l.ended {
		return
	}
	l.begun = true
	l.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	l.w.Header().Set("X-Content-Type-Options", "nosniff")
	l.w.WriteHeader(http.StatusOK)
}

func (l *logWriter) flush() {
	if l.ended {
		return
	}
	if flusher, ok := l.w.(http.Flusher); ok {
		flusher.Flush()
	}
}

// Write implements io.Writer.
func (l *logWriter) Write(p []byte) (int, error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.ctx.Err() != nil {
		return 0, context.Cause(l.ctx)
	}
	if l.ended {
		return 0, http.ErrBodyNotAllowed
	}
	l.header()
	n, err := l.w.Write(p)
	l.flush()
	return n, err
}

// leave prevents further use of the response writer, which must not be used after the handler
// returns.
func (l *logWriter) leave() {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.ended = true
}

// end completes the response. If the log is incomplete, it responds with the error or aborts the
// response, unless the client has disconnected.
func (l *logWriter) end(err error, responder rest.Responder) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	cause := context.Cause(l.ctx)
	if cause != nil {
		err = cause
	}
	if err == nil {
		l.header()
	}
	l.ended = true
	switch {
	case err == nil:
	case !l.begun:
		responder.Error(err)
	case errors.Is(cause, context.Canceled): // the client has disconnected
	default:
		klog.FromContext(l.ctx).Error(err, "Breaking off a log")
		panic(http.ErrAbortHandler)
	}
}
