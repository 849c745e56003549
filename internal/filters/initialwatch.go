// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
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
	leave := turn
	if sendsObjects {
		place, err := m.watches.Take(req.Context(), userName(req))
		if err != nil {
			responsewriters.RespondWithError(w, req, apierrors.NewTooManyRequests(
				"too many watches of this user are starting", 2), m.serializer)
			return
		}
		leave = func() { turn(); place() }
	}
	giveBack, err := m.take(req, cost)
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
	release := sync.OnceFunc(func() {
		giveBack()
		leave()
	})
	defer release()
	defer time.AfterFunc(maxInitial, release).Stop()
	initial := &initialShare{ctx: req.Context(), release: release}
	if share := shareOf(req.Context()); share != nil {
		share.initial = initial
	}
	handler.ServeHTTP(w, req.WithContext(utilflowcontrol.WithInitializationSignal(req.Context(), initial)))
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

// initialShare is the memory that a watch has for its initial events. The watch gives it back when
// the storage has sent all of them and the handler has written all of them. A watch over WebSocket,
// whose writes are not events, gives it back after maxInitial. initialShare implements
// utilflowcontrol.InitializationSignal. The methods of nil do nothing.
type initialShare struct {
	ctx     context.Context //nolint:containedctx // with the signal of priority and fairness
	release func()

	mutex sync.Mutex
	// sent is true when the storage has sent all initial events. unwritten is the number of these
	// that the handler has not written.
	sent      bool
	unwritten int
}

// expect adds initial events that the storage has sent.
func (s *initialShare) expect(events int) {
	if s != nil {
		s.count(events, false)
	}
}

// written follows each event that the handler has written. The initial ones are the first.
func (s *initialShare) written() {
	if s != nil {
		s.count(-1, false)
	}
}

// Signal implements utilflowcontrol.InitializationSignal. The storage calls it when it has sent all
// initial events.
func (s *initialShare) Signal() {
	s.count(0, true)
	utilflowcontrol.WatchInitialized(s.ctx)
}

func (s *initialShare) count(events int, sent bool) {
	s.mutex.Lock()
	s.unwritten = max(0, s.unwritten+events)
	s.sent = s.sent || sent
	over := s.sent && s.unwritten == 0
	s.mutex.Unlock()
	if over {
		s.release()
	}
}

// Wait does nothing. Priority and fairness waits for its own signal.
func (s *initialShare) Wait() {}
