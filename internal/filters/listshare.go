// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	flowcontrolrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"
)

// listShare is the share of the memory of a list that is read from the watch cache. Its cost is known
// when the list has been read. A list of few small objects therefore waits for no memory, even if the
// resource has many others.
type listShare struct {
	memory    *Memory
	req       *http.Request
	info      *genericapirequest.RequestInfo
	table     bool // buffered, not streamed
	converted bool
	used      bool
	release   func() // nil without a share
}

type listShareKey struct{}

// withListShare returns the request with a listShare, if it is a list that is read from the watch
// cache. Call release when the request has been served.
func (m *Memory) withListShare(req *http.Request, info *genericapirequest.RequestInfo) (with *http.Request,
	release func()) {
	l := m.parseList(req, info)
	if !l.cached {
		return req, func() {}
	}
	share := &listShare{memory: m, info: info, table: l.table, converted: l.converted}
	share.req = req.WithContext(context.WithValue(req.Context(), listShareKey{}, share))
	return share.req, func() {
		if share.release != nil {
			share.release()
		}
	}
}

// getList calls get, which reads a list, with the share of the request. Reading copies the objects
// without what they refer to. For that, the request holds a share of reads, which it keeps for
// milliseconds: if it must wait for the memory of the response, it reads the list again.
func getList(ctx context.Context, list runtime.Object, get func() error) error {
	l, ok := ctx.Value(listShareKey{}).(*listShare)
	if !ok || l.used {
		return get()
	}
	l.used = true
	user, stop := userName(l.req), func() {}
	if cost := l.memory.readCost(l.info); cost > smallCost {
		var err error
		if stop, err = l.memory.reads.Take(ctx, user, cost); err != nil {
			return apierrors.NewTooManyRequests(fmt.Sprintf("wait to read a list: %v", err), 1)
		}
	}
	stop = sync.OnceFunc(stop)
	defer stop() // also after a panic
	cost, err := int64(0), get()
	if err == nil {
		cost, err = l.cost(list)
	}
	if err == nil && cost > smallCost {
		if release, ok := l.memory.budget.TryTake(user, min(cost, l.memory.total)); ok {
			hasMemory(l.req.Context(), true)
			l.release = func() { hasMemory(l.req.Context(), false); release() }
		}
	}
	if err != nil || cost <= smallCost || l.release != nil {
		return err
	}
	err = runtime.SetZeroValue(list)
	stop()
	if err != nil {
		return err
	}
	if l.release, err = l.memory.take(l.req, cost); err != nil {
		return err
	}
	return get()
}

// readCost returns an upper bound of the memory that a list takes when it is read.
func (m *Memory) readCost(info *genericapirequest.RequestInfo) int64 {
	stats, err := m.counts.Get(resourceOf(info).String())
	if errors.Is(err, flowcontrolrequest.ObjectCountNotFoundErr) {
		return m.perUser // the server has just started
	}
	return stats.ObjectCount * listedCost
}

// cost returns the cost of a list. It returns an error with status 413 if a Table needs more memory
// than a user may have.
func (l *listShare) cost(list runtime.Object) (int64, error) {
	objects, of := int64(meta.LenList(list)), resourceOf(l.info)
	if objects == 0 {
		return 0, nil
	}
	if !l.table && !l.converted { // streamed
		cost := objects*listedCost + objectByteCost*l.memory.sizes.Largest(of, l.info.Namespace)
		if objects > fewObjects {
			cost += gzipCost
		}
		return cost, nil
	}
	size, largest := l.memory.sizes.List(of, list)
	switch {
	case l.table && wholeObjects(l.req) && size*wholeByteCost > l.memory.perUser:
		return 0, l.memory.tooLarge(size, largest)
	case l.converted:
		return size*convertedByteCost + objects*wholeObjectCost, nil
	}
	return size*wholeByteCost + objects*wholeObjectCost, nil
}
