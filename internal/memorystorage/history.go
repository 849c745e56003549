// SPDX-License-Identifier: Apache-2.0

package memorystorage

import (
	"slices"
	"sort"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
)

// change is a change of an object. before is nil for a creation, after for a deletion.
type change struct {
	revision      uint64
	key           string
	before, after runtime.Object
	size          int64 // bytes
}

// object returns the object after the change, or the deleted one.
func (c change) object() runtime.Object {
	if c.after == nil {
		return c.before
	}
	return c.after
}

// LimitHistory limits the size of the objects in the history, except the last change. Call it before
// the first change.
func (s *Storage) LimitHistory(bytes int64, sizeOf func(runtime.Object) int64) {
	s.maxSize, s.sizeOf = bytes, sizeOf
}

// record adds a change to the history, and wakes watches. The caller holds the lock.
func (s *Storage) record(c change) {
	if s.sizeOf != nil {
		// The object before a change is that after an earlier one.
		if c.size = s.sizeOf(c.object()); c.size > s.maxSize {
			c.size = s.maxSize
		}
		s.size += c.size
	}
	s.history = append(s.history, c)
	excess := max(0, len(s.history)-max(minHistory, s.objects.Len()))
	for _, old := range s.history[:excess] {
		s.size -= old.size
	}
	for ; s.size > s.maxSize; excess++ {
		s.size -= s.history[excess].size
	}
	if excess > 0 {
		s.oldest = s.history[excess-1].revision
		clear(s.history[:excess])
		s.history = s.history[excess:]
	}
	close(s.changed)
	s.changed = make(chan struct{})
}

// closed is a closed channel.
var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// after returns the next changes after a revision, the revision of the last of them or the current
// one, and channels that are closed when there are more changes and by the next request for progress.
// ok is false if the changes are not known.
func (s *Storage) after(revision uint64) (changes []change, now uint64, changed, progress <-chan struct{}, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := sort.Search(len(s.history), func(i int) bool { return s.history[i].revision > revision })
	ok = revision >= s.oldest && revision <= s.revision
	if len(s.history)-first > batch {
		// A watch whose reader is slow must not keep the others.
		changes = slices.Clone(s.history[first : first+batch])
		return changes, changes[batch-1].revision, closed, s.progress, ok
	}
	return slices.Clone(s.history[first:]), s.revision, s.changed, s.progress, ok
}

// Advance raises the resourceVersion to the current time, of which Time reports it, and informs
// watches.
func (s *Storage) Advance() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := uint64(time.Now().UnixMilli())<<idBits | s.revision%s.step
	if now <= s.revision || s.step != 1<<idBits {
		return
	}
	s.revision = now
	close(s.progress)
	s.progress = make(chan struct{})
}

// Time returns a time until which the Storage that made a resourceVersion did not have a later state.
func Time(resourceVersion uint64) time.Time {
	return time.UnixMilli(int64(resourceVersion >> idBits))
}
