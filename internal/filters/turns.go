// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"context"
	"maps"
	"sync"
	"time"

	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	flowcontrolrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"

	"example.com/extension-apiserver/internal/budget"
	"example.com/extension-apiserver/internal/fairness"
)

const (
	// freeCores compute no lists. Where all cores do, Go lets other goroutines wait for a second and more.
	freeCores = 1
	// manyObjects is the number of objects of a resource from which its lists have turns, manyBytes that of their bytes.
	manyObjects, manyBytes = 500, 1 << 20
	// longTurn is when a turn ends that has not ended. turnChecks is how often it is looked whether the list waits for
	// its client.
	longTurn, turnChecks = 250 * time.Millisecond, 25 * time.Millisecond
	// mostWaiting is how long the lists of a user that wait for their turns may take together, as far as is known: they
	// have seats in kube-apiserver, for which others wait. leastWaiting and manyWaiting bound their number. unknownList
	// is how long a list of a new user takes.
	mostWaiting, unknownList  = 250 * time.Millisecond, 25 * time.Millisecond
	leastWaiting, manyWaiting = 2, 100
	// knownListers is how many users are known.
	knownListers = 10_000
	// longWait is how long a list waits for its turn: as long as the library lets it wait for seats.
	longWait = 15 * time.Second
)

// turns are those of lists of many objects, which users have one after the other. Priority and fairness lets more lists
// compute at a time than there are cores, and small requests wait for seats behind them.
type turns struct {
	budget *budget.Budget
	counts flowcontrolrequest.StorageObjectCountTracker

	mutex   sync.Mutex
	listers map[string]*lister
}

// lister is a user. waiting is how many of its lists wait, typical how long its turns took lately.
type lister struct {
	waiting int
	typical time.Duration
}

func newTurns(all int, counts flowcontrolrequest.StorageObjectCountTracker) *turns {
	return &turns{budget: budget.New(int64(all), int64(all+1)/2), counts: counts, listers: map[string]*lister{}}
}

// wait waits until a request may compute. Call end when it has. The turn ends before that if the request waits for its
// client, or takes long.
func (t *turns) wait(ctx context.Context, s *seat, info *genericapirequest.RequestInfo) (end func(), err error) {
	if !t.needed(info) {
		return func() {}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, longWait)
	defer cancel()
	user, err := t.enter(s.user)
	if err != nil {
		return nil, err
	}
	release, err := t.budget.Take(ctx, s.user, 1)
	t.leave(user)
	if err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	go func() {
		began := time.Now()
		defer func() {
			t.took(user, time.Since(began))
			release()
		}()
		ticker := time.NewTicker(turnChecks)
		defer ticker.Stop()
		for range longTurn / turnChecks {
			select {
			case <-ended:
				return
			case <-ticker.C:
			}
			if s.waitsFor() >= turnChecks/2 {
				return
			}
		}
	}()
	return func() { close(ended) }, nil
}

// enter counts a list that waits. It returns an error if too many of the user do.
func (t *turns) enter(user string) (*lister, error) {
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
		return nil, fairness.ErrFull
	}
	l.waiting++
	return l, nil
}

func (t *turns) leave(l *lister) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	l.waiting--
}

func (t *turns) took(l *lister, turn time.Duration) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	l.typical = (3*l.typical + turn) / 4
}

// needed returns whether a request reads many objects.
func (t *turns) needed(info *genericapirequest.RequestInfo) bool {
	if info == nil || info.Verb != "list" && info.Verb != "deletecollection" || info.Name != "" {
		return false
	}
	stats, _ := t.counts.Get(resourceOf(info).String()) // what was known at last does where that is old
	return stats.ObjectCount > manyObjects || stats.ObjectCount*stats.EstimatedAverageObjectSizeBytes > manyBytes
}
