// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream"

	"example.com/extension-apiserver/internal/authentication"
	"example.com/extension-apiserver/internal/fairness"
)

const (
	// confirmPeriod is how often the identity and the rights of watches and upgraded connections are
	// checked again. With the 10 s for which an answer of kube-apiserver is remembered, and 20 % of
	// jitter, they end within 46 s of a lost right.
	confirmPeriod = 30 * time.Second
	// confirmLimit is how long they may go on without a confirmation, so that a restart of
	// kube-apiserver does not end them.
	confirmLimit = 75 * time.Second
	// ReservedWatches of a user are accepted even when there are as many in all as may be.
	ReservedWatches = 20
	// placeCost is the memory in bytes of a watch with a short head and small events. watchCost is that of a watch
	// without them, to which a byte of the selectors, the head and the largest event adds so many.
	placeCost                         = 76 << 10
	watchCost                         = 60 << 10
	selectorCost, headCost, eventCost = 68, 2, 2
)

// LongRunning ends watches, logs and upgraded connections when their caller loses the permission by which they
// started, or when its certificate or token expires. kube-apiserver checks both at the start only. The front proxy's
// certificate is not checked again: kube-apiserver authenticated the user when the request arrived, and a rotation of
// its CA would end the sessions of all users.
type LongRunning struct {
	authenticator authenticator.Request
	authorizer    authorizer.UnconditionalAuthorizer
	panics        *metrics.Counter // in upgraded connections
	period, limit time.Duration
	watches       fairness.Limits
	stopped       chan struct{} // when logs end
}

// NewLongRunning returns a LongRunning that checks callers with the authenticator and the authorizer again, counts
// panics in upgraded connections, and accepts perUser watches of a user and total watches, plus 20 of each user.
func NewLongRunning(a authenticator.Request, z authorizer.UnconditionalAuthorizer, panics *metrics.Counter, perUser,
	total int) *LongRunning {
	return &LongRunning{a, z, panics, confirmPeriod, confirmLimit,
		fairness.Limits{PerKey: perUser, Total: total, Reserved: ReservedWatches}, make(chan struct{})}
}

// Run ends logs after the delay that follows the end of the context, as the library ends watches. It returns then.
func (l *LongRunning) Run(ctx context.Context, delay time.Duration) {
	<-ctx.Done()
	<-time.After(delay)
	close(l.stopped)
}

// grant is how a request was let in.
type grant struct {
	mutex sync.Mutex
	// request has the credentials, which the library deletes; nil if they are the front proxy's.
	request *http.Request
	user    user.Info
	path    string
	// allowed are the questions whose answer was yes, until the request was let in: sealed.
	allowed []authorizer.Attributes
	sealed  bool
}

// seal ends the record: what the request is allowed later is not checked again.
func (g *grant) seal() {
	if g != nil {
		g.mutex.Lock()
		defer g.mutex.Unlock()
		g.sealed = true
	}
}

type grantKey struct{}

func grantFrom(ctx context.Context) *grant {
	a, _ := ctx.Value(grantKey{}).(*grant)
	return a
}

// RecordAllowed records a permission by which a long-running request is authorized. Other requests are ignored.
func RecordAllowed(ctx context.Context, attributes authorizer.Attributes) {
	if a := grantFrom(ctx); a != nil {
		a.mutex.Lock()
		defer a.mutex.Unlock()
		if !a.sealed {
			a.allowed = append(a.allowed, attributes)
		}
	}
}

// isLongRunning returns whether a request can be a watch, a log or an upgrade.
func isLongRunning(req *http.Request) bool {
	info, ok := genericapirequest.RequestInfoFrom(req.Context())
	return ok && info.IsResourceRequest && (info.Verb == "watch" || isLog(info) ||
		httpstream.IsUpgradeRequest(req))
}

// AuthenticateRequest implements authenticator.Request. It records the credentials of long-running requests.
func (l *LongRunning) AuthenticateRequest(req *http.Request) (*authenticator.Response, bool, error) {
	if !isLongRunning(req) {
		return l.authenticator.AuthenticateRequest(req)
	}
	// The authenticator removes the protocol of a WebSocket that carries a token.
	original := req.Clone(context.WithoutCancel(req.Context()))
	original.Body = http.NoBody
	resp, ok, err := l.authenticator.AuthenticateRequest(req)
	if a := grantFrom(req.Context()); a != nil && ok && err == nil {
		a.user, a.path = resp.User, req.URL.Path
		if credential, _ := authentication.CredentialFrom(
			req.Context()); credential.Authenticator != authentication.RequestHeader {
			a.request = original
		}
	}
	return resp, ok, err
}

// WithGrant adds a record of identity and permissions to the context of each request. It must precede
// authentication.
func (l *LongRunning) WithGrant(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		handler.ServeHTTP(w, req.WithContext(context.WithValue(req.Context(), grantKey{}, &grant{})))
	})
}

// WithWatchLimit limits the number of open watches and logs together, and ends one that loses its permission. It must
// follow authorization. Those beyond the limit get 429. The memory of open ones is not there for other requests.
func (l *LongRunning) WithWatchLimit(handler http.Handler, memory *Memory,
	serializer runtime.NegotiatedSerializer) http.Handler {
	open := fairness.New(l.watches)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		info, ok := genericapirequest.RequestInfoFrom(req.Context())
		if !ok || !info.IsResourceRequest || info.Verb != "watch" && !isLog(info) {
			handler.ServeHTTP(w, req)
			return
		}
		user, _ := genericapirequest.UserFrom(req.Context())
		// RequestInfo has no selectors for /watch/ in the path.
		query := req.URL.Query()
		selectors := len(query.Get("labelSelector")) + len(query.Get("fieldSelector"))
		least := watchCost + selectorCost*selectors + headCost*headSize(req)
		if isLog(info) { // it has its object until it ends
			least += objectByteCost * int(memory.sizes.Object(resourceOf(info), info.Namespace, info.Name))
		}
		places := &watchPlaces{open: open, memory: memory, user: user.GetName(), most: l.watches.PerKey}
		defer places.release()
		if err := places.take(req.Context(), least); err != nil {
			message := "too many watches and logs are open; one with a long selector or large objects counts for several"
			responsewriters.RespondWithError(w, req, apierrors.NewTooManyRequests(message, 10), serializer)
			return
		}
		ctx, cancel := context.WithCancelCause(req.Context())
		defer cancel(nil)
		granted := grantFrom(ctx)
		granted.seal()
		go l.confirm(ctx, cancel, granted)
		if isLog(info) {
			l.serveLog(ctx, cancel, w, req, handler)
			return
		}
		events := &eventWriter{ResponseWriter: w, written: func(size int) {
			// The library keeps two buffers as large as the largest event.
			if err := places.take(ctx, least+eventCost*size); err != nil {
				cancel(apierrors.NewTooManyRequests("too many watches of large objects are open", 10))
			}
		}}
		handler.ServeHTTP(responsewriter.WrapForHTTP1Or2(events), req.WithContext(ctx))
	})
}

// valueSize is what a header field costs without its text, in bytes.
const valueSize = 40

// headSize returns the bytes of a head, which a watch keeps until it ends. kube-apiserver repeats the query in a header
// field.
func headSize(req *http.Request) int {
	size := len(req.RequestURI)
	for name, values := range req.Header {
		for _, value := range values {
			size += len(name) + len(value) + valueSize
		}
	}
	return size
}

// watchPlaces are those that a watch has of the places of all watches.
type watchPlaces struct {
	open     *fairness.Slots
	memory   *Memory
	user     string
	most     int
	releases []func()
}

// take takes as many places as are missing for the memory in bytes, or to the most that a user may have.
func (p *watchPlaces) take(ctx context.Context, memory int) error {
	for len(p.releases) < min((memory+placeCost-1)/placeCost, p.most) {
		release, err := p.open.Take(ctx, p.user)
		if err != nil {
			return err
		}
		p.memory.budget.Reserve(placeCost)
		p.releases = append(p.releases, func() {
			release()
			p.memory.budget.Reserve(-placeCost)
		})
	}
	return nil
}

func (p *watchPlaces) release() {
	for _, release := range p.releases {
		release()
	}
}

// eventWriter reports the size of each event, which the library writes at once, before it is sent.
type eventWriter struct {
	http.ResponseWriter
	written func(size int)
}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (w *eventWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *eventWriter) Write(p []byte) (int, error) {
	w.written(len(p))
	return w.ResponseWriter.Write(p)
}

// Hijack implements http.Hijacker, for a watch over WebSocket.
func (w *eventWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	hijacker, ok := w.ResponseWriter.(http.Hijacker)
	if !ok {
		return nil, nil, errors.ErrUnsupported
	}
	conn, buffered, err := hijacker.Hijack()
	if err != nil {
		return nil, nil, err
	}
	events := &eventConn{conn, w.written}
	return events, bufio.NewReadWriter(buffered.Reader, bufio.NewWriter(events)), nil
}

type eventConn struct {
	net.Conn
	written func(size int)
}

func (c *eventConn) Write(p []byte) (int, error) {
	c.written(len(p))
	return c.Conn.Write(p)
}

// confirm checks again, until the context ends, that the request would be let in, and cancels it
// when it would not.
func (l *LongRunning) confirm(ctx context.Context, cancel context.CancelCauseFunc, granted *grant) {
	if granted == nil {
		cancel(apierrors.NewInternalError(fmt.Errorf("the request has no recorded authorization")))
		return
	}
	confirmed := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait.Jitter(l.period, 0.2)):
		}
		denied, err := l.check(ctx, granted)
		switch {
		case ctx.Err() != nil:
			return
		case denied == nil && err == nil:
			confirmed = time.Now()
			continue
		case denied == nil && time.Since(confirmed) < l.limit:
			continue
		case denied == nil:
			user := ""
			if granted.user != nil { // the loopback client has another authenticator
				user = granted.user.GetName()
			}
			klog.FromContext(ctx).Error(err, "Ending a request because its user cannot be authenticated or authorized again",
				"user", user, "path", granted.path)
			denied = apierrors.NewUnauthorized("the identity or the permissions of the user could not be confirmed")
		}
		cancel(denied)
		return
	}
}

// sameUser ignores the extras: they can tell about a single request.
func sameUser(a, b user.Info) bool {
	return a.GetName() == b.GetName() && a.GetUID() == b.GetUID() &&
		sets.New(a.GetGroups()...).Equal(sets.New(b.GetGroups()...))
}

// check returns denied when the caller is refused, and err when that could not be found out.
func (l *LongRunning) check(ctx context.Context, granted *grant) (denied *apierrors.StatusError, err error) {
	ctx, stop := context.WithTimeout(ctx, l.period)
	defer stop()
	if granted.request != nil {
		resp, ok, err := l.authenticator.AuthenticateRequest(granted.request.Clone(ctx))
		if err != nil {
			return nil, err
		}
		if !ok || !sameUser(resp.User, granted.user) {
			return apierrors.NewUnauthorized(
				"the credentials no longer match the original user and groups"), nil
		}
	}
	for _, attributes := range granted.allowed {
		decision, reason, err := l.authorizer.Authorize(ctx, attributes)
		if err != nil {
			return nil, err
		}
		if decision != authorizer.DecisionAllow {
			resource := schema.GroupResource{Group: attributes.GetAPIGroup(), Resource: attributes.GetResource()}
			return apierrors.NewForbidden(resource, attributes.GetName(),
				fmt.Errorf("the permission to %s was revoked: %s", attributes.GetVerb(), reason)), nil
		}
	}
	return nil, nil
}
