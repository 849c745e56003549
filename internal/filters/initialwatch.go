// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"
)

// initialize makes a watch wait for the memory of its initial events: the existing objects, or the
// events since a resource version. A watch that sends many objects also waits for its turn, as a
// list of them does.
func (m *Memory) initialize(handler http.Handler, w http.ResponseWriter, req *http.Request,
	info *genericapirequest.RequestInfo) {
	cost := initialByteCost * m.sizes.Largest(resourceOf(info), info.Namespace)
	sendsObjects, turn := initialEvents(req.URL.Query()), func() {}
	if sendsObjects {
		req, turn = m.turns.withTurn(req, info)
	}
	if cost <= smallCost && !hasTurn(req.Context()) {
		handler.ServeHTTP(w, req)
		return
	}
	// Waiting watches hold seats of priority and fairness, for which other requests wait. Their
	// number is limited per user.
	leave, pause := turn, laterPause
	if sendsObjects {
		place, err := m.watches.Take(req.Context(), userName(req))
		if err != nil {
			responsewriters.RespondWithError(w, req, apierrors.NewTooManyRequests(
				"too many watches of this user are starting", 2), m.serializer)
			return
		}
		leave, pause = func() { turn(); place() }, initialPause
	}
	giveBack, err := m.take(req, cost, m.perUser)
	if err == nil {
		if err = awaitTurn(req.Context()); err != nil {
			giveBack()
		}
	}
	if err != nil {
		leave()
		responsewriters.RespondWithError(w, req, err, m.serializer)
		return
	}
	var released atomic.Bool
	release := sync.OnceFunc(func() {
		released.Store(true)
		giveBack()
		leave()
	})
	defer release()
	defer time.AfterFunc(maxInitial, release).Stop()
	sent := &initialWriter{ResponseWriter: w, release: release, released: &released, pause: pause}
	ctx := utilflowcontrol.WithInitializationSignal(req.Context(), &initialSignal{req.Context(), sent})
	handler.ServeHTTP(responsewriter.WrapForHTTP1Or2(sent), req.WithContext(ctx))
}

// initialEvents reports whether a watch sends the existing objects. Like the library, it treats
// every number equal to 0, such as "00", as the resource version 0, and every text other than
// "false" and "0" as true.
func initialEvents(query url.Values) bool {
	version, err := strconv.ParseUint(query.Get("resourceVersion"), 10, 64)
	if err != nil || version == 0 {
		return true
	}
	send := query["sendInitialEvents"]
	return len(send) > 0 && send[0] != "false" && send[0] != "0"
}

// initialSignal implements utilflowcontrol.InitializationSignal. The storage signals when all
// initial events are on their way to the client.
type initialSignal struct {
	ctx context.Context // with the signal of priority and fairness
	w   *initialWriter
}

func (s *initialSignal) Signal() {
	s.w.signalled.Store(true)
	time.AfterFunc(s.w.pause, s.w.releaseIdle)
	utilflowcontrol.WatchInitialized(s.ctx)
}

// Wait does nothing. Priority and fairness waits for its own signal.
func (s *initialSignal) Wait() {}

// initialWriter releases the memory of a watch when its initial events have been written. The
// library flushes when it has no more events to write.
type initialWriter struct {
	http.ResponseWriter
	release  func()
	released *atomic.Bool
	pause    time.Duration
	// signalled is true after the signal of the storage. unsent is true while data has been
	// written and not flushed.
	signalled, unsent atomic.Bool
}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (w *initialWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *initialWriter) Write(p []byte) (int, error) {
	w.unsent.Store(true)
	return w.ResponseWriter.Write(p)
}

// Flush implements http.Flusher.
func (w *initialWriter) Flush() {
	w.ResponseWriter.(http.Flusher).Flush()
	if w.unsent.Swap(false) && w.signalled.Load() {
		w.release()
	}
}

// releaseIdle releases the memory of a watch that has nothing to send. While unflushed data
// exists, it checks again after each pause.
func (w *initialWriter) releaseIdle() {
	switch {
	case w.released.Load():
	case w.unsent.Load():
		time.AfterFunc(w.pause, w.releaseIdle)
	default:
		w.release()
	}
}
