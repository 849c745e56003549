// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/munnerz/goautoneg"
	"golang.org/x/sync/semaphore"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversionscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/features"
	genericapiserver "k8s.io/apiserver/pkg/server"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	flowcontrolrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"

	"example.com/extension-apiserver/internal/budget"
	"example.com/extension-apiserver/internal/fairness"
	"example.com/extension-apiserver/internal/objectsizes"
)

// Memory costs of requests in bytes at the peak, measured by TestCosts (test/security/limits).
const (
	// memoryTotal is the memory for all requests that cost more than smallCost, unless GOMEMLIMIT
	// is set. In that case they have half of GOMEMLIMIT, which is the same amount with
	// manifests/base/deployment.yaml. The rest is for the idle server and the objects that it
	// caches.
	memoryTotal = 192 << 20
	// memoryUsers is the number of users that can use all of the memory together.
	memoryUsers = 3
	// All users together may write 1/writtenTotal of that memory, and one user 1/writtenUser, as
	// JSON of large objects, while the watch cache keeps them. There they take twice as much.
	writtenTotal, writtenUser = 4, 6
	// Lists may use 1/readsTotal of that memory, in addition, until their cost is known.
	readsTotal = 8
	// smallCost is the maximum cost of requests that priority and fairness limits well enough by
	// their number.
	smallCost = 512 << 10
	// userBodies is how many long bodies of a user are read, or wait, at a time. waitingBodies is
	// how many more are not read yet.
	userBodies, waitingBodies = 16, 10
	// allBodies is how many long bodies of all users are in memory: 192 MiB.
	allBodies = 64
	// longBody is the size of a long body in bytes.
	longBody = 64 << 10

	// listedCost is the cost of an object in a streamed list, which is converted to the version of
	// the request.
	listedCost = 600
	// gzipCost is the cost of the compression of a list, which the library begins at 128 KiB. Lists
	// of up to fewObjects are shorter, or large enough to count otherwise.
	gzipCost, fewObjects = 1280 << 10, 100
	// wholeByteCost and wholeObjectCost are the costs of a byte of JSON and of an object in a list
	// that is not streamed: the converted objects and the whole response.
	wholeByteCost, wholeObjectCost = 2, 2 << 10
	// liveByteCost is the cost of a byte of a list whose objects are not stored: the objects of the
	// source, their copies, and the response. liveWholeCost is the cost if the list is not streamed.
	liveByteCost, liveWholeCost = 3, 5
	// objectByteCost is the cost of a byte of a single object in a response, and of the largest one in
	// a streamed list. changedByteCost is the cost of a byte of an object that is changed or deleted.
	objectByteCost, changedByteCost = 3, 20
	// convertedByteCost is the cost of a byte of the objects in a list that are converted to another
	// version. The library converts all of them before it begins the response, and the conversion may
	// copy their maps.
	convertedByteCost = 5
	// initialByteCost is the cost of a byte of the largest object for a watch that sends the
	// existing objects. Some of them are in memory in each representation between the storage and
	// the response.
	initialByteCost = 5
	// userInitial is how many such watches of a user hold memory or wait for it.
	userInitial = 20
	// maxInitial is the time after which such a watch releases its memory in any case.
	maxInitial = 30 * time.Second
	// maxGrace is longer than the work of a write takes, not counting the time that it waits.
	maxGrace = 10 * time.Second
)

// Memory limits the memory that requests use together. A request waits until its share is free, at
// most until its timeout, and then gets 429. Priority and fairness counts requests instead: there,
// a list counts as at most one of 1 MB, and a write as one seat.
type Memory struct {
	budget     *budget.Budget
	turns      *Turns
	total      int64
	perUser    int64 // limit for one user, unless one request needs more
	bodies     *fairness.Slots
	read       *semaphore.Weighted // long bodies in memory
	reads      *budget.Budget      // of lists that are read from the watch cache
	watches    *fairness.Slots     // watches that send their initial events
	counts     flowcontrolrequest.StorageObjectCountTracker
	sizes      *objectsizes.Sizes
	maxBody    int64
	grace      time.Duration
	serializer runtime.NegotiatedSerializer
}

// NewMemory returns a Memory of half of GOMEMLIMIT, or of 192 MiB if GOMEMLIMIT is not set. Each
// user has at most a third of it. NewMemory also sets the write limits of sizes.
func NewMemory(config *genericapiserver.Config, sizes *objectsizes.Sizes, turns *Turns) *Memory {
	maxBody := config.MaxRequestBodyBytes
	if maxBody <= 0 { // which the handlers treat as no limit
		maxBody = math.MaxInt64 / (byteCost + valueCost) / 2
	}
	total := int64(memoryTotal)
	limit := debug.SetMemoryLimit(-1)
	if limit < math.MaxInt64 {
		total = limit / 2
	}
	sizes.LimitWrites(total/writtenTotal, total/writtenUser)
	shares := budget.New(total, total/memoryUsers)
	if limit < math.MaxInt64 {
		shares.LimitTo((&headroom{most: limit / 3 * 2}).free) // a heap in use beyond that is collected all the time
	}
	return &Memory{
		budget: shares, total: total, perUser: total / memoryUsers, turns: turns,
		bodies: fairness.New(fairness.Limits{PerKey: userBodies, Queued: waitingBodies}),
		read:   semaphore.NewWeighted(allBodies), watches: fairness.New(fairness.Limits{PerKey: userInitial}),
		reads:  budget.New(total/readsTotal, total/readsTotal/2),
		counts: config.StorageObjectCountTracker,
		sizes:  sizes, maxBody: maxBody, grace: min(config.RequestTimeout, maxGrace), serializer: config.Serializer,
	}
}

// WithLimit makes requests wait for their share of the memory. It must follow authorization. It
// reads bodies of up to the library's limit before the request waits, so that slow clients hold no
// memory for which others wait. Requests for which streams returns true read their body themselves,
// and only wait for the memory of the objects that they read.
func (m *Memory) WithLimit(handler http.Handler, streams func(*genericapirequest.RequestInfo) bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		info, ok := genericapirequest.RequestInfoFrom(req.Context())
		if !ok || !info.IsResourceRequest {
			handler.ServeHTTP(w, req)
			return
		}
		if streams(info) {
			handler.ServeHTTP(w, m.withReads(req, info))
			return
		}
		if info.Verb == "watch" {
			m.initialize(handler, w, req, info)
			return
		}
		size := int64(0)
		if writes.Has(info.Verb) {
			if size = req.ContentLength; size < 0 || size > m.maxBody {
				size = m.maxBody
			}
		}
		if err := m.checkWrites(req, info, size); err != nil {
			responsewriters.RespondWithError(w, req, err, m.serializer)
			return
		}
		cost, err := m.objectsCost(req, info)
		if err != nil {
			responsewriters.RespondWithError(w, req, err, m.serializer)
			return
		}
		// An indented response takes three times as much memory.
		if (cost > smallCost || size > longBody) && pretty(req) {
			req = compact(req)
			if cost, err = m.objectsCost(req, info); err != nil {
				responsewriters.RespondWithError(w, req, err, m.serializer)
				return
			}
		}
		release, size, err := m.admit(req, cost, size)
		if err != nil {
			responsewriters.RespondWithError(w, req, err, m.serializer)
			return
		}
		defer release()
		served, err := m.turns.awaitTurnOfObject(req, info, size)
		if err != nil {
			responsewriters.RespondWithError(w, req, err, m.serializer)
			return
		}
		defer served()
		req, end := m.turns.withTurn(req, info)
		defer end()
		req, giveBack := m.withListShare(req, info)
		defer giveBack()
		req, forget := m.withListSize(req, info, cost)
		defer forget()
		if writes.Has(info.Verb) {
			var stop func()
			req, stop = m.waitForHandler(req)
			defer stop()
		}
		handler.ServeHTTP(w, req)
	})
}

// checkWrites returns an error with status 429 if the user stores large objects too fast. The
// watch cache keeps all versions of the last 75 s.
func (m *Memory) checkWrites(req *http.Request, info *genericapirequest.RequestInfo, bodySize int64) error {
	switch {
	case info.Verb != "create" && info.Verb != "update" && info.Verb != "patch", req.URL.Query().Has("dryRun"):
		return nil
	case bodySize <= longBody && (info.Name == "" ||
		m.sizes.Object(resourceOf(info), info.Namespace, info.Name) <= longBody):
		return nil
	}
	if delay := m.sizes.WriteDelay(resourceOf(info), userName(req)); delay > 0 {
		return apierrors.NewTooManyRequests("objects larger than 64 KiB are written too fast",
			int(math.Ceil(delay.Seconds())))
	}
	return nil
}

// admit reads the body of a request, if size is greater than 0, and waits for the memory that the
// request needs. It returns the size of the body.
func (m *Memory) admit(req *http.Request, cost, size int64) (release func(), read int64, err error) {
	body, leave := []byte(nil), func() {}
	if size > 0 {
		if body, leave, err = m.readBody(req); err != nil {
			return nil, 0, err
		}
	}
	costOf := encodingOf(req).cost
	if req.Method == http.MethodPatch {
		costOf = encodingOf(req).patchCost
	}
	bodyCost, err := costOf(body)
	if err != nil {
		leave()
		return nil, 0, err
	}
	// The cost of a body is an upper bound, which most bodies do not reach.
	giveBack, err := m.take(req, min(cost+bodyCost, max(cost, m.perUser)))
	if err != nil {
		leave()
		return nil, 0, err
	}
	return func() { giveBack(); leave() }, int64(len(body)), nil
}

// readBody returns the body up to the limit, and restores it for the handler, with the rest of a
// longer body. It waits for a slot for a long body. leave releases the slot.
func (m *Memory) readBody(req *http.Request) (body []byte, leave func(), err error) {
	read := func(limit int64) error {
		more, err := io.ReadAll(io.LimitReader(req.Body, limit-int64(len(body))))
		body = append(body, more...)
		switch {
		case errors.Is(err, errGaveWay):
			return apierrors.NewTooManyRequests(fmt.Sprintf("read the body: %v", err), 1)
		case err != nil:
			return apierrors.NewBadRequest(fmt.Sprintf("read the body: %v", err))
		}
		return nil
	}
	if err := read(longBody); err != nil {
		return nil, nil, err
	}
	leave = func() {}
	if len(body) == longBody {
		if leave, err = m.bodyPlace(req); err != nil {
			return nil, nil, err
		}
		if err := read(m.maxBody + 1); err != nil {
			leave()
			return nil, nil, err
		}
	}
	req.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body), req.Body))
	return body, leave, nil
}

// bodyPlace waits for a slot for a long body. leave releases the slot.
func (m *Memory) bodyPlace(req *http.Request) (leave func(), err error) {
	ctx, cancel := context.WithCancel(req.Context())
	defer cancel()
	defer waits(ctx, cancel)()
	place, err := m.bodies.Take(ctx, userName(req))
	if err != nil {
		return nil, apierrors.NewTooManyRequests("too many large request bodies of this user", 1)
	}
	if err := m.read.Acquire(ctx, 1); err != nil {
		place()
		return nil, apierrors.NewTooManyRequests("too many large request bodies", 1)
	}
	return func() { m.read.Release(1); place() }, nil
}

func userName(req *http.Request) string {
	if user, ok := genericapirequest.UserFrom(req.Context()); ok {
		return user.GetName()
	}
	return ""
}

// take waits for a share of the memory, at most for all of it. A cost of up to smallCost needs no
// share.
func (m *Memory) take(req *http.Request, cost int64) (release func(), err error) {
	if cost <= smallCost {
		return func() {}, nil
	}
	return m.takeShare(req, min(cost, m.total))
}

// takeShare waits for a share of the memory in bytes.
func (m *Memory) takeShare(req *http.Request, share int64) (release func(), err error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	defer cancel(nil)
	defer waitsForMemory(ctx, need{m.budget, share}, func() { cancel(errGaveWay) })()
	giveBack, err := m.budget.Take(ctx, userName(req), share)
	if err != nil {
		return nil, apierrors.NewTooManyRequests(fmt.Sprintf("wait for memory: %v", err), 1)
	}
	hasMemory(ctx, true)
	return func() {
		hasMemory(ctx, false)
		giveBack()
	}, nil
}

// waitForHandler returns a write whose handler does not return before its work ends, if the work
// takes no longer than the grace period. The library runs the work in a goroutine, and abandons it
// when the client disconnects or at the end of ?timeout. The work would then hold no seat and no
// memory of the budget. Call stop when the handler has returned.
func (m *Memory) waitForHandler(req *http.Request) (write *http.Request, stop func()) {
	client := req.Context()
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(client))
	grace := time.Now().Add(m.grace)
	gone := context.AfterFunc(client, func() {
		select {
		case <-time.After(time.Until(grace)):
		case <-ctx.Done():
		}
		cancel(context.Cause(client))
	})
	return req.WithContext(ctx), func() {
		gone()
		cancel(nil)
	}
}

// objectsCost returns the cost of the stored objects that a request reads or changes. It returns
// an error with status 413 for a list that needs more memory than a user may have.
func (m *Memory) objectsCost(req *http.Request, info *genericapirequest.RequestInfo) (int64, error) {
	switch {
	case info.Verb == "list", info.Verb == "deletecollection":
		return m.listCost(req, info)
	case info.Verb == "get":
		return objectByteCost * m.sizes.Object(resourceOf(info), info.Namespace, info.Name), nil
	case info.Name != "":
		return changedByteCost * m.sizes.Object(resourceOf(info), info.Namespace, info.Name), nil
	}
	return 0, nil
}

func resourceOf(info *genericapirequest.RequestInfo) schema.GroupResource {
	return schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}
}

// compact returns the request without the parameters that request indented JSON.
func compact(req *http.Request) *http.Request {
	req = req.Clone(req.Context())
	query := req.URL.Query()
	query.Set("pretty", "false")
	req.URL.RawQuery = query.Encode()
	req.Header.Set("Accept", prettyParameter.ReplaceAllString(req.Header.Get("Accept"), ""))
	return req
}

var prettyParameter = regexp.MustCompile(`(?i)\s*;\s*pretty\s*=[^;,]*`)

// pretty reports whether JSON may be indented in the response.
func pretty(req *http.Request) bool {
	if indented := req.URL.Query().Get("pretty"); indented != "" {
		yes, _ := strconv.ParseBool(indented)
		return yes || strings.Contains(req.Header.Get("Accept"), "pretty")
	}
	for _, agent := range []string{"curl", "Wget", "Mozilla/5.0"} {
		if strings.HasPrefix(req.UserAgent(), agent) {
			return true
		}
	}
	return strings.Contains(req.Header.Get("Accept"), "pretty")
}

// buffered reports whether the Accept header requests a response that the library encodes as a
// whole: a Table. After StreamMetadata, the library streams lists of metadata like other lists,
// except with CBOR.
func buffered(accept string) bool {
	for _, clause := range goautoneg.ParseAccept(accept) {
		if as := clause.Params["as"]; as == "Table" ||
			as != "" && utilfeature.DefaultFeatureGate.Enabled(features.CBORServingAndStorage) {
			return true
		}
	}
	return false
}

// StreamMetadata makes the library stream lists of metadata, as it does other lists. It changes a
// variable of the process. Call it before the server serves requests.
func StreamMetadata() {
	metainternalversionscheme.Codecs = serializer.NewCodecFactory(metainternalversionscheme.Scheme,
		serializer.WithStreamingCollectionEncodingToJSON(), serializer.WithStreamingCollectionEncodingToProtobuf())
}
