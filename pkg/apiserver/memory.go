// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/munnerz/goautoneg"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"
	flowcontrolrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"
	"k8s.io/streaming/pkg/httpstream"

	"example.com/extension-apiserver/internal/budget"
	"example.com/extension-apiserver/internal/fairness"
)

// What requests cost in bytes of memory at their peak, measured by TestCosts (test/security/limits).
const (
	// memoryTotal is for all requests that cost more than smallCost. With what the server has when it is idle and the objects that it
	// keeps, it leaves the heap below GOMEMLIMIT of manifests/base/deployment.yaml.
	memoryTotal = 192 << 20
	// memoryPerUser leaves half for others.
	memoryPerUser = memoryTotal / 2
	// userBodies is how many bodies of a user that may be costly there may be at a time. Each that waits is in memory: 3 MiB.
	userBodies = 16
	// smallCost is that of requests whose number priority and fairness bounds well enough.
	smallCost = 2 << 20

	// valueCost and byteCost are those of a value that is decoded into interfaces or structs, and of a byte of a body, which is copied by
	// admission, by a patch and by the storage.
	valueCost, byteCost = 300, 8
	// yamlByteCost and cborByteCost are those of encodings in which each byte can be a value. CBOR has one byte for an empty map.
	yamlByteCost, cborByteCost = 140, 300
	// yamlResponseByteCost is that of a byte of JSON that YAML is made of.
	yamlResponseByteCost = 170
	// listedCost is that of an object in a list: it is converted to the version of the request.
	listedCost = 600
	// wholeByteCost and wholeObjectCost are those of a stored byte and of an object in a list that is not streamed: what it is converted
	// to, and the whole response.
	wholeByteCost, wholeObjectCost = 2, 2 << 10
	// initialCost is that of a watch that sends the objects there are: some of 1.5 MB, in each form between the storage and the response.
	initialCost = 8 << 20
	// maxGrace is longer than the work for a write takes, but for what it waits for.
	maxGrace = 10 * time.Second
	// maxInitial is when such a watch gives its memory back at the latest.
	maxInitial = 30 * time.Second
)

// memory makes requests wait whose handlers would take more memory together than there is. Priority and fairness counts requests: it
// takes a list for one of 1 MB at the most, and a write for one seat.
type memory struct {
	budget     *budget.Budget
	bodies     *fairness.Places
	counts     flowcontrolrequest.StorageObjectCountTracker
	maxBody    int64
	grace      time.Duration
	serializer runtime.NegotiatedSerializer
}

func newMemory(config *genericapiserver.Config) *memory {
	maxBody := config.MaxRequestBodyBytes
	if maxBody <= 0 { // as the handlers understand it
		maxBody = math.MaxInt64 / cborByteCost / 2
	}
	return &memory{
		budget: budget.New(memoryTotal, memoryPerUser), bodies: fairness.New(fairness.Limits{PerKey: userBodies}), counts: config.StorageObjectCountTracker,
		maxBody: maxBody, grace: min(config.RequestTimeout, maxGrace), serializer: config.Serializer,
	}
}

// limit comes after authorization. Bodies that may be costly are read before the request waits, so a slow client makes nobody wait.
// streams are the resources that read their body themselves.
func (m *memory) limit(handler http.Handler, streams func(*genericapirequest.RequestInfo) bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		info, ok := genericapirequest.RequestInfoFrom(req.Context())
		if !ok || !info.IsResourceRequest || httpstream.IsUpgradeRequest(req) || streams(info) {
			handler.ServeHTTP(w, req)
			return
		}
		if info.Verb == "watch" {
			m.initialize(handler, w, req, info)
			return
		}
		cost, size := m.listCost(req, info), int64(0)
		if writes.Has(info.Verb) {
			var stop func()
			req, stop = m.untilEnd(req)
			defer stop()
			if size = req.ContentLength; size < 0 || size > m.maxBody {
				size = m.maxBody
			}
		}
		if cost+encodingOf(req).worst(size) <= smallCost {
			handler.ServeHTTP(w, req)
			return
		}
		release, err := m.admit(req, cost, size)
		if err != nil {
			responsewriters.RespondWithError(w, req, err, m.serializer)
			return
		}
		defer release()
		handler.ServeHTTP(w, req)
	})
}

// initialize makes a watch wait that sends the objects there are first, until there is memory for that.
func (m *memory) initialize(handler http.Handler, w http.ResponseWriter, req *http.Request, info *genericapirequest.RequestInfo) {
	query := req.URL.Query()
	version := query.Get("resourceVersion")
	_, err := m.counts.Get(resourceOf(info))
	if errors.Is(err, flowcontrolrequest.ObjectCountNotFoundErr) || version != "" && version != "0" && query.Get("sendInitialEvents") != "true" {
		handler.ServeHTTP(w, req)
		return
	}
	release, err := m.take(req, initialCost)
	if err != nil {
		responsewriters.RespondWithError(w, req, err, m.serializer)
		return
	}
	sent := &initialEvents{ctx: req.Context(), release: sync.OnceFunc(release)}
	defer sent.release()
	defer time.AfterFunc(maxInitial, sent.release).Stop()
	handler.ServeHTTP(w, req.WithContext(utilflowcontrol.WithInitializationSignal(req.Context(), sent)))
}

// initialEvents implements utilflowcontrol.InitializationSignal: the storage signals that it has sent them.
type initialEvents struct {
	ctx     context.Context // with the signal of priority and fairness
	release func()
}

func (e *initialEvents) Signal() {
	e.release()
	utilflowcontrol.WatchInitialized(e.ctx)
}

// Wait is for priority and fairness, which has a signal of its own.
func (e *initialEvents) Wait() {}

// admit reads the body of a request, if it has one of up to size bytes, and waits for the memory that the request needs.
func (m *memory) admit(req *http.Request, cost, size int64) (release func(), err error) {
	body, leave := []byte(nil), func() {}
	if size > 0 {
		if leave, err = m.bodies.Take(req.Context(), userName(req)); err != nil {
			return nil, apierrors.NewTooManyRequests("too many long bodies of this user", 1)
		}
		if body, err = m.read(req); err != nil {
			leave()
			return nil, err
		}
	}
	bodyCost, err := encodingOf(req).cost(body)
	if err != nil {
		leave()
		return nil, err
	}
	giveBack, err := m.take(req, cost+bodyCost)
	if err != nil {
		leave()
		return nil, err
	}
	return func() { giveBack(); leave() }, nil
}

func userName(req *http.Request) string {
	if user, ok := genericapirequest.UserFrom(req.Context()); ok {
		return user.GetName()
	}
	return ""
}

// take waits for a share of the memory. A small one needs none.
func (m *memory) take(req *http.Request, cost int64) (release func(), err error) {
	if cost <= smallCost {
		return func() {}, nil
	}
	if release, err = m.budget.Take(req.Context(), userName(req), cost); err != nil {
		return nil, apierrors.NewTooManyRequests(fmt.Sprintf("wait for memory: %v", err), 1)
	}
	return release, nil
}

// read returns the body, and leaves it, and what is too long, to the handler.
func (m *memory) read(req *http.Request) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(req.Body, m.maxBody+1))
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("read the body: %v", err))
	}
	req.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body), req.Body))
	return body, nil
}

// untilEnd returns a write whose handler does not return before its work ends, if that takes no longer than the grace. The library has a
// goroutine for the work, and leaves it alone when the client goes away, or at the end of ?timeout: it would have no seat and no memory of
// the budget. Call stop when the handler has returned.
func (m *memory) untilEnd(req *http.Request) (write *http.Request, stop func()) {
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

// listCost returns what the list costs that the request is answered with: 0 for other requests.
func (m *memory) listCost(req *http.Request, info *genericapirequest.RequestInfo) int64 {
	if info.Verb != "list" && info.Verb != "deletecollection" {
		return 0
	}
	// What the counts were at last does if they are not up to date. Objects that are not in etcd are not counted.
	stats, _ := m.counts.Get(resourceOf(info))
	objects, query := stats.ObjectCount, req.URL.Query()
	// The library returns all objects that it has in its cache for resourceVersion=0.
	if limit, err := strconv.ParseInt(query.Get("limit"), 10, 64); err == nil && limit > 0 && query.Get("resourceVersion") != "0" {
		objects = min(objects, limit)
	}
	if info.Name != "" {
		objects = min(objects, 1)
	}
	// What is not in the cache is read from etcd as a whole.
	fromEtcd := query.Get("continue") != "" || query.Get("resourceVersionMatch") == "Exact"
	if info.Verb == "list" && !fromEtcd && !transformed(req.Header.Get("Accept")) {
		return objects * listedCost
	}
	return objects * (stats.EstimatedAverageObjectSizeBytes*wholeByteCost + wholeObjectCost)
}

func resourceOf(info *genericapirequest.RequestInfo) string {
	return schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}.String()
}

// transformed reports whether the header Accept asks for a Table or for the metadata alone.
func transformed(accept string) bool {
	for _, clause := range goautoneg.ParseAccept(accept) {
		if clause.Params["as"] != "" {
			return true
		}
	}
	return false
}
