// SPDX-License-Identifier: Apache-2.0

package objectsizes

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// fading is the part of an earlier, larger value that the next list removes from an estimate.
const fading = 8

// Lists estimates the sizes of the lists of a kind whose objects are not stored, from earlier ones.
// Lists of one namespace and those of all namespaces have estimates of their own. All methods are
// safe for concurrent use.
type Lists struct {
	most int64

	mutex sync.Mutex
	known map[bool]*known // by whether the lists are of one namespace
}

// known is what earlier lists show. The values follow a larger list at once, and a smaller one slowly.
type known struct {
	size    int64 // average of the objects of a list, in bytes
	objects int64 // of a whole list
	counted bool  // there was a whole list
	exceeds bool  // a list had more objects than its limit
}

// NewLists returns Lists of a kind whose lists have at most the size most, in bytes.
func NewLists(most int64) *Lists { return &Lists{most: most, known: map[bool]*known{}} }

// Expected returns the size in bytes that the next list in a namespace, or in all namespaces if
// namespace is empty, is expected to have. limit is the maximum number of its objects, or 0. If
// nothing is known about such lists, it is the maximum.
func (l *Lists) Expected(namespace string, limit int64) int64 {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	k := l.known[namespace != ""]
	if k == nil {
		return l.most
	}
	switch limited := limit > 0 && !k.exceeds; {
	case limited && k.counted:
		return k.size * min(limit, k.objects)
	case limited:
		return min(k.size*limit, l.most)
	case k.counted:
		return k.size * k.objects
	}
	return l.most
}

// List is a list that has been read.
type List struct {
	Namespace string // empty for all namespaces
	Limit     int64  // maximum number of objects that the client requested, or 0
	Objects   int64
	Size      int64 // bytes
	// Whole is true if the list is not a page of a longer one.
	Whole bool
}

// Record records a list whose objects are in memory, and calls the function of WithListSize.
func (l *Lists) Record(ctx context.Context, list List) {
	l.mutex.Lock()
	k := l.known[list.Namespace != ""]
	if k == nil {
		k = &known{}
		l.known[list.Namespace != ""] = k
	}
	follow(&k.size, list.Size/max(1, list.Objects))
	k.exceeds = k.exceeds || list.Limit > 0 && list.Objects > list.Limit
	if list.Whole {
		follow(&k.objects, list.Objects)
		k.counted = true
	}
	l.mutex.Unlock()
	if inMemory, ok := ctx.Value(listSizeKey{}).(func(int64)); ok {
		inMemory(list.Size)
	}
}

func follow(value *int64, now int64) { *value = max(now, *value-(*value-now)/fading) }

type listSizeKey struct{}

// WithListSize returns a context with a function that Record calls with the size of a list in bytes.
func WithListSize(ctx context.Context, inMemory func(size int64)) context.Context {
	return context.WithValue(ctx, listSizeKey{}, inMemory)
}

// AddLists adds the Lists of a resource.
func (s *Sizes) AddLists(of schema.GroupResource, lists *Lists) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.lists[of] = lists
}

// Lists returns the Lists of a resource, or nil if its objects are stored or nothing is known.
func (s *Sizes) Lists(of schema.GroupResource) *Lists {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.lists[of]
}
