// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"context"
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
	// userWaiting is how many lists of a user wait for their turns, allWaiting those of all; reservedWaiting of each are
	// accepted. They have seats in kube-apiserver, for which others wait.
	userWaiting, allWaiting, reservedWaiting = 8, 40, 2
	// longWait is how long a list waits for its turn: as long as the library lets it wait for seats.
	longWait = 15 * time.Second
)

// turns are those of lists of many objects, which users have one after the other. Priority and fairness lets more lists
// compute at a time than there are cores, and small requests wait for seats behind them.
type turns struct {
	budget  *budget.Budget
	waiting *fairness.Slots
	counts  flowcontrolrequest.StorageObjectCountTracker
}

func newTurns(all int, counts flowcontrolrequest.StorageObjectCountTracker) *turns {
	return &turns{budget.New(int64(all), int64(all+1)/2),
		fairness.New(fairness.Limits{PerKey: userWaiting, Total: allWaiting, Reserved: reservedWaiting}), counts}
}

// wait waits until a request may compute. Call end when it has. The turn ends before that if the request waits for its
// client, or takes long.
func (t *turns) wait(ctx context.Context, s *seat, info *genericapirequest.RequestInfo) (end func(), err error) {
	if !t.needed(info) {
		return func() {}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, longWait)
	defer cancel()
	leave, err := t.waiting.Take(ctx, s.user)
	if err != nil {
		return nil, err
	}
	defer leave()
	release, err := t.budget.Take(ctx, s.user, 1)
	if err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	go func() {
		defer release()
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

// needed returns whether a request reads many objects.
func (t *turns) needed(info *genericapirequest.RequestInfo) bool {
	if info == nil || info.Verb != "list" && info.Verb != "deletecollection" || info.Name != "" {
		return false
	}
	stats, _ := t.counts.Get(resourceOf(info).String()) // what was known at last does where that is old
	return stats.ObjectCount > manyObjects || stats.ObjectCount*stats.EstimatedAverageObjectSizeBytes > manyBytes
}
