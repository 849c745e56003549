// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"context"
	"errors"
	"maps"
	"net/http"
	goruntime "runtime"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"
	flowcontrolrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"

	"example.com/extension-apiserver/internal/budget"
	"example.com/extension-apiserver/internal/objectsizes"
)

const (
	// freeCores is the number of cores that compute no lists. If all cores compute lists, Go makes
	// other goroutines wait for a second and more.
	freeCores = 1
	// manyObjects is the number of objects above which the lists of a resource need turns.
	// manyBytes is the same for their total size in bytes.
	manyObjects, manyBytes = 100, 256 << 10
	// manyComparisons is the number of comparisons of a selector with the objects of a resource above
	// which a list waits for its turn before it reads them. That many take a millisecond.
	manyComparisons = 100_000
	// longTurn is the maximum duration of a turn. turnChecks is how often a turn checks whether
	// the list waits for its client.
	longTurn, turnChecks = 250 * time.Millisecond, 10 * time.Millisecond
	// mostWaiting is the maximum total duration of the lists of a user that wait for their turns,
	// estimated from earlier lists. leastWaiting and manyWaiting limit their number. unknownList
	// is the estimate for a list of a new user.
	mostWaiting, unknownList  = time.Second, 25 * time.Millisecond
	leastWaiting, manyWaiting = 2, 100
	// knownListers is the number of users above which users without waiting lists are
	// deleted.
	knownListers = 10_000
	// longWait is how long a list waits for its turn. The library lets it wait as long for seats.
	longWait = 15 * time.Second
)

// Turns makes lists of many objects, and requests with a large object, run one after the other,
// with users in turn, because small requests wait if all cores compute lists. A list takes its turn
// when its objects have been read, unless they are few, and before that if they are not read from
// the watch cache or if the selectors of the list are long. During its turn, it waits for nothing
// but its client.
type Turns struct {
	budget *budget.Budget
	counts flowcontrolrequest.StorageObjectCountTracker
	sizes  *objectsizes.Sizes

	mutex   sync.Mutex
	listers map[string]*lister
}

// lister is a user. waiting is the number of its waiting lists. typical is the recent average
// duration of its turns.
type lister struct {
	waiting int
	typical time.Duration
}

// NewTurns returns Turns on all cores but one.
func NewTurns(counts flowcontrolrequest.StorageObjectCountTracker, sizes *objectsizes.Sizes) *Turns {
	return newTurns(max(1, goruntime.GOMAXPROCS(0)-freeCores), counts, sizes)
}

func newTurns(all int, counts flowcontrolrequest.StorageObjectCountTracker, sizes *objectsizes.Sizes) *Turns {
	return &Turns{budget: budget.New(int64(all), int64(all+1)/2), counts: counts, sizes: sizes,
		listers: map[string]*lister{}}
}

// needed reports whether a request reads so many objects that it needs a turn.
func (t *Turns) needed(info *genericapirequest.RequestInfo) bool {
	if info == nil || info.Verb != "list" && info.Verb != "deletecollection" && info.Verb != "watch" ||
		info.Name != "" && info.Namespace != "" { // a name in all namespaces is compared with each object
		return false
	}
	stats, _ := t.counts.Get(resourceOf(info).String()) // a stale count is good enough
	return stats.ObjectCount > manyObjects || stats.ObjectCount*stats.EstimatedAverageObjectSizeBytes > manyBytes
}

type turnKey struct{}

// turn is the turn of one request.
type turn struct {
	all   *Turns
	user  string
	info  *genericapirequest.RequestInfo
	seat  *seat // nil without priority and fairness
	had   bool
	ended chan struct{}
}

// withTurn returns the request with a turn, if it reads many objects. Call end when the request has
// been served.
func (t *Turns) withTurn(req *http.Request, info *genericapirequest.RequestInfo) (with *http.Request, end func()) {
	if !t.needed(info) {
		return req, func() {}
	}
	return t.newTurn(req, info)
}

// awaitTurnOfObject makes a request wait for its turn if its object or its body is large. Call end
// when the request has been served. An error has status 429.
func (t *Turns) awaitTurnOfObject(req *http.Request, info *genericapirequest.RequestInfo, body int64) (end func(),
	err error) {
	if hasTurn(req.Context()) || body <= longBody && (info.Name == "" ||
		t.sizes.Object(resourceOf(info), info.Namespace, info.Name) <= longBody) {
		return func() {}, nil
	}
	req, end = t.newTurn(req, info)
	if err := awaitTurn(req.Context()); err != nil {
		end()
		return nil, err
	}
	return end, nil
}

func (t *Turns) newTurn(req *http.Request, info *genericapirequest.RequestInfo) (with *http.Request, end func()) {
	own := &turn{all: t, user: userName(req), info: info, ended: make(chan struct{})}
	own.seat, _ = req.Context().Value(seatKey{}).(*seat)
	return req.WithContext(context.WithValue(req.Context(), turnKey{}, own)), func() { close(own.ended) }
}

func hasTurn(ctx context.Context) bool { return ctx.Value(turnKey{}) != nil }

// awaitTurn waits for the turn of a request, if it needs one and has not had it. The turn ends
// when the request ends, waits for its client, or takes too long. An error has status 429.
func awaitTurn(ctx context.Context) error {
	own, ok := ctx.Value(turnKey{}).(*turn)
	if !ok || own.had {
		return nil
	}
	own.had = true
	return own.take(ctx)
}

// take waits for the turn. An error has status 429.
func (t *turn) take(ctx context.Context) error {
	user, err := t.all.enter(t.user)
	if err != nil {
		return apierrors.NewTooManyRequests(err.Error(), 1)
	}
	ctx, cancel := context.WithTimeout(ctx, longWait)
	defer cancel()
	release, err := t.all.budget.Take(ctx, t.user, 1)
	t.all.leave(user)
	if err != nil {
		return apierrors.NewTooManyRequests("wait for a slot: "+err.Error(), 1)
	}
	go func() {
		began := time.Now()
		t.run()
		t.all.took(user, time.Since(began))
		release()
	}()
	return nil
}

// awaitTurnFor is awaitTurn for a list that has been read. A list of few objects does not wait.
func awaitTurnFor(ctx context.Context, list runtime.Object) error {
	if own, ok := ctx.Value(turnKey{}).(*turn); ok {
		objects := int64(meta.LenList(list))
		largest := own.all.sizes.Largest(resourceOf(own.info), own.info.Namespace)
		if objects <= manyObjects && objects*largest <= manyBytes {
			return nil
		}
	}
	return awaitTurn(ctx)
}

// isLongScan reports whether a list with a turn compares its selectors with many objects.
func isLongScan(ctx context.Context, selectors storage.SelectionPredicate) bool {
	own, ok := ctx.Value(turnKey{}).(*turn)
	if !ok || selectors.Empty() {
		return false
	}
	comparisons := len(selectors.Field.Requirements())
	requirements, _ := selectors.Label.Requirements()
	for _, r := range requirements {
		comparisons += 1 + len(r.ValuesUnsorted())
	}
	stats, _ := own.all.counts.Get(resourceOf(own.info).String())
	return stats.ObjectCount*int64(comparisons) > manyComparisons
}

// run returns when the turn is over.
func (t *turn) run() {
	ticker := time.NewTicker(turnChecks)
	defer ticker.Stop()
	for range longTurn / turnChecks {
		select {
		case <-t.ended:
			return
		case <-ticker.C:
		}
		if t.seat != nil && t.seat.waitsNow() {
			return
		}
	}
}

// enter counts a waiting list. It returns an error if too many lists of the user wait.
func (t *Turns) enter(user string) (*lister, error) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	l := t.listers[user]
	if l == nil {
		if len(t.listers) >= knownListers {
			maps.DeleteFunc(t.listers, func(_ string, l *lister) bool { return l.waiting == 0 })
		}
		l = &lister{typical: unknownList}
		t.listers[user] = l
	}
	if l.waiting >= manyWaiting || l.waiting >= leastWaiting && time.Duration(l.waiting+1)*l.typical > mostWaiting {
		return nil, errors.New("too many large requests of this user are queued")
	}
	l.waiting++
	return l, nil
}

func (t *Turns) leave(l *lister) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	l.waiting--
}

func (t *Turns) took(l *lister, turn time.Duration) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	l.typical = (3*l.typical + turn) / 4
}
