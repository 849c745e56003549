// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"context"
	"fmt"
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
	// confirmPeriod is how often the identity and the permissions of watches and upgraded
	// connections are checked again. With the 10 s for which kube-apiserver's responses are
	// cached, and 20 % jitter, they end within 46 s after the loss of a permission.
	confirmPeriod = 30 * time.Second
	// confirmLimit is how long they may continue without a successful check, so that a restart of
	// kube-apiserver does not end them.
	confirmLimit = 75 * time.Second
	// ReservedWatches is the number of watches of a user that are accepted even when the total is
	// reached.
	ReservedWatches = 20
	// placeCost is the memory in bytes of a watch with a short request head and small events.
	// watchCost is the memory of a watch without its head and its events. Each byte of the
	// selectors, the head and the largest event adds selectorCost, headCost and eventCost bytes.
	placeCost                         = 76 << 10
	watchCost                         = 60 << 10
	selectorCost, headCost, eventCost = 68, 2, 2
)

// LongRunning ends watches, log requests and upgraded connections when their caller loses the
// permission with which they started, or when its certificate or token expires. kube-apiserver
// checks both only at the start. LongRunning does not check the front proxy's certificate again:
// kube-apiserver authenticated the user when the request arrived, and a rotation of the
// front-proxy CA would end the sessions of all users.
type LongRunning struct {
	authenticator authenticator.Request
	authorizer    authorizer.UnconditionalAuthorizer
	panics        *metrics.Counter // counts panics in upgraded connections
	period, limit time.Duration
	watches       fairness.Limits
	stopped       chan struct{} // closed when log requests must end
}

// NewLongRunning returns a LongRunning that checks callers again with the authenticator and the
// authorizer, and counts panics in upgraded connections. It accepts perUser watches of each user,
// and total watches of all users. When the total is reached, each user may still have 20.
func NewLongRunning(a authenticator.Request, z authorizer.UnconditionalAuthorizer, panics *metrics.Counter, perUser,
	total int) *LongRunning {
	return &LongRunning{a, z, panics, confirmPeriod, confirmLimit,
		fairness.Limits{PerKey: perUser, Total: total, Reserved: ReservedWatches}, make(chan struct{})}
}

// Run ends log requests after the delay that follows the end of the context, as the library ends
// watches. It then returns.
func (l *LongRunning) Run(ctx context.Context, delay time.Duration) {
	<-ctx.Done()
	<-time.After(delay)
	close(l.stopped)
}

// grant records how a request was admitted.
type grant struct {
	mutex sync.Mutex
	// request holds the credentials, which the library deletes from the served request. It is nil
	// for a request of the front proxy.
	request *http.Request
	user    user.Info
	path    string
	// allowed lists the permissions that the authorizer granted before the record was sealed.
	allowed []authorizer.Attributes
	sealed  bool
}

// seal closes the record. Permissions that are granted later are not checked again.
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

// RecordAllowed records a permission with which a request is authorized, unless the record is
// sealed. It does nothing without a record in the context.
func RecordAllowed(ctx context.Context, attributes authorizer.Attributes) {
	if a := grantFrom(ctx); a != nil {
		a.mutex.Lock()
		defer a.mutex.Unlock()
		if !a.sealed {
			a.allowed = append(a.allowed, attributes)
		}
	}
}

// isLongRunning reports whether a request can be a watch, a log request or an upgrade.
func isLongRunning(req *http.Request) bool {
	info, ok := genericapirequest.RequestInfoFrom(req.Context())
	return ok && info.IsResourceRequest && (info.Verb == "watch" || isLog(info) ||
		httpstream.IsUpgradeRequest(req))
}

// AuthenticateRequest implements authenticator.Request. It records the credentials of long-running
// requests.
func (l *LongRunning) AuthenticateRequest(req *http.Request) (*authenticator.Response, bool, error) {
	if !isLongRunning(req) {
		return l.authenticator.AuthenticateRequest(req)
	}
	// The authenticator removes the WebSocket subprotocol that carries a token.
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

// WithGrant adds a record of identity and permissions to the context of each request. It must
// precede authentication.
func (l *LongRunning) WithGrant(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		handler.ServeHTTP(w, req.WithContext(context.WithValue(req.Context(), grantKey{}, &grant{})))
	})
}

// WithWatchLimit limits the number of open watches and log requests together, and ends those that
// lose their permission. It must follow authorization. Requests beyond the limit get 429. The
// memory of open watches is not available to other requests.
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
		// RequestInfo has no selectors for paths with /watch/.
		query := req.URL.Query()
		selectors := len(query.Get("labelSelector")) + len(query.Get("fieldSelector"))
		least := watchCost + selectorCost*selectors + headCost*headSize(req)
		if isLog(info) { // it holds its object until it ends
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
		req = req.WithContext(ctx)
		wait := func(int) error { return nil }
		if !initialEvents(query) {
			var past *replay
			req, past = memory.turns.withReplay(req, info)
			defer past.end()
			if err := past.next(); err != nil {
				responsewriters.RespondWithError(w, req, err, serializer)
				return
			}
			wait = past.sent
		}
		event := &eventShare{memory: memory, req: req}
		defer event.release()
		req = req.WithContext(context.WithValue(req.Context(), eventShareKey{}, event))
		events := &eventWriter{ResponseWriter: w, share: event, written: func(size int) {
			// The library keeps two buffers as large as the largest event.
			if err := places.take(ctx, least+eventCost*size); err != nil {
				cancel(apierrors.NewTooManyRequests("too many watches of large objects are open", 10))
			} else if err := wait(size); err != nil {
				cancel(err)
			}
		}}
		handler.ServeHTTP(responsewriter.WrapForHTTP1Or2(events), req)
	})
}

// valueSize is the memory cost of a header field without its text, in bytes.
const valueSize = 40

// headSize returns the size in bytes of the request head, which a watch keeps until it ends.
// kube-apiserver repeats the query in a header field.
func headSize(req *http.Request) int {
	size := len(req.RequestURI)
	for name, values := range req.Header {
		for _, value := range values {
			size += len(name) + len(value) + valueSize
		}
	}
	return size
}

// watchPlaces holds the slots that one watch has taken.
type watchPlaces struct {
	open     *fairness.Slots
	memory   *Memory
	user     string
	most     int
	releases []func()
}

// take takes slots until they cover the memory in bytes, or until the watch has as many as one
// user may have.
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

// confirm checks repeatedly, until the context ends, that the request is still permitted. It
// cancels the request if it is not, or if no check succeeds for too long.
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

// sameUser ignores the extras, because they can describe a single request.
func sameUser(a, b user.Info) bool {
	return a.GetName() == b.GetName() && a.GetUID() == b.GetUID() &&
		sets.New(a.GetGroups()...).Equal(sets.New(b.GetGroups()...))
}

// check returns denied if the caller is no longer permitted, and err if the check failed.
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
