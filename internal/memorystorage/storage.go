// SPDX-License-Identifier: Apache-2.0

// Package memorystorage implements storage.Interface of k8s.io/apiserver in memory, for objects
// that another system stores. Put a cacher of the library in front of it: it adds the watch cache,
// indexes and bookmarks.
package memorystorage

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/utils/third_party/forked/golang/btree"
)

const (
	// degree is that of the tree of objects, as in the library's watch cache.
	degree = 16
	// minHistory is the number of changes that the storage keeps at least, for watches that continue
	// from an earlier resourceVersion. It keeps as many as it has objects, if those are more.
	minHistory = 10_000
	// batch is the number of changes that a watch takes from the history at a time.
	batch = 100
	// idBits is the number of low bits of a resourceVersion that identify the Storage. The others are
	// enough for the milliseconds since 1970, as long as the library stores resourceVersions in 63
	// bits.
	idBits = 21
)

// Messages of 410 errors, as kube-apiserver's.
const (
	expired              = "The resourceVersion for the provided list is too old."
	expiredWatch         = "The resourceVersion for the provided watch is too old or from another server."
	inconsistentContinue = "The provided continue parameter is too old " +
		"to display a consistent list result. You can start a new list without " +
		"the continue parameter, or use the continue token in this response to " +
		"retrieve the remainder of the results. Continuing with the provided " +
		"token results in an inconsistent list - objects that were created, " +
		"modified, or deleted between the time the first chunk was returned " +
		"and now may show up in the list."
)

// Storage is a storage.Interface in memory. All methods can be called concurrently.
//
// All resourceVersions of a Storage have the same random low bits, by which Foreign recognizes
// those of another Storage. The other bits start at the time of creation in milliseconds, and each
// change increases them by one.
type Storage struct {
	versioner storage.APIObjectVersioner
	prefix    string // of all keys, with a slash at its end
	newObject func() runtime.Object

	step uint64 // by which each change increases the revision

	mu       sync.Mutex
	objects  *btree.BTree[item] // by key; never changed after Clone
	revision uint64             // of the last change
	history  []change           // of the last changes, in the order of their revisions
	size     int64              // of the objects in the history, in bytes
	maxSize  int64              // of the history, in bytes, or 0
	sizeOf   func(runtime.Object) int64
	oldest   uint64        // Watches and lists can start at this revision, and not before.
	changed  chan struct{} // closed and replaced by each change
	progress chan struct{} // closed and replaced by each request for progress
}

var _ storage.Interface = &Storage{}

// item is a stored object. The object is never changed.
type item struct {
	key      string
	object   runtime.Object
	revision uint64
}

// New returns an empty Storage. All keys start with prefix. newObject returns an empty object, for
// bookmarks.
func New(prefix string, newObject func() runtime.Object) *Storage {
	id := rand.Uint64N(1 << idBits) //nolint:gosec // not a secret
	start := uint64(time.Now().UnixMilli())<<idBits | id
	return &Storage{
		prefix:    strings.TrimSuffix(prefix, "/") + "/",
		newObject: newObject,
		objects:   btree.New(degree, func(a, b item) bool { return a.key < b.key }),
		step:      1 << idBits,
		revision:  start + 1<<idBits,
		oldest:    start,
		changed:   make(chan struct{}),
		progress:  make(chan struct{}),
	}
}

// Foreign returns whether a resourceVersion is not one of this Storage, or is in its future.
func (s *Storage) Foreign(resourceVersion uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return resourceVersion%s.step != s.revision%s.step || resourceVersion > s.revision
}

type filterKey struct{}

// WithFilter returns a context in which Get, GetList and Watch find only the objects that the
// filter selects. The filter must depend on nothing but the object.
func WithFilter(ctx context.Context, filter func(runtime.Object) bool) context.Context {
	return context.WithValue(ctx, filterKey{}, filter)
}

// visible returns whether the filter of a context selects an object.
func visible(ctx context.Context, object runtime.Object) bool {
	filter, ok := ctx.Value(filterKey{}).(func(runtime.Object) bool)
	return !ok || filter(object)
}

// Versioner implements storage.Interface.
func (s *Storage) Versioner() storage.Versioner { return s.versioner }

// Create implements storage.Interface. Objects do not expire: ttl has no effect.
func (s *Storage) Create(_ context.Context, key string, obj, out runtime.Object, _ uint64) error {
	if version, err := s.versioner.ObjectResourceVersion(obj); err == nil && version != 0 {
		return storage.ErrResourceVersionSetOnCreate
	}
	key, err := storage.PrepareKey(s.prefix, key, false)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.objects.Has(item{key: key}) {
		return storage.NewKeyExistsError(key, 0)
	}
	stored, err := s.put(key, nil, obj)
	if err != nil || out == nil {
		return err
	}
	return Assign(out, stored)
}

// put stores a copy of an object, and returns it. The caller holds the lock.
func (s *Storage) put(key string, before, obj runtime.Object) (runtime.Object, error) {
	stored := obj.DeepCopyObject()
	if err := s.versioner.PrepareObjectForStorage(stored); err != nil {
		return nil, fmt.Errorf("prepare %s for storage: %w", key, err)
	}
	if err := s.versioner.UpdateObject(stored, s.revision+s.step); err != nil {
		return nil, fmt.Errorf("set the resourceVersion of %s: %w", key, err)
	}
	s.revision += s.step
	s.objects.ReplaceOrInsert(item{key: key, object: stored, revision: s.revision})
	s.record(change{revision: s.revision, key: key, before: before, after: stored})
	return stored, nil
}

// get returns the item of a key; it has no object if there is none.
func (s *Storage) get(key string) item {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, _ := s.objects.Get(item{key: key})
	return found
}

// Get implements storage.Interface.
func (s *Storage) Get(ctx context.Context, key string, opts storage.GetOptions, out runtime.Object) error {
	key, err := storage.PrepareKey(s.prefix, key, false)
	if err != nil {
		return err
	}
	s.mu.Lock()
	found, ok := s.objects.Get(item{key: key})
	revision := s.revision
	s.mu.Unlock()
	if err := s.checkMinimum(opts.ResourceVersion, revision); err != nil {
		return err
	}
	switch {
	case ok && visible(ctx, found.object):
		return Assign(out, found.object)
	case opts.IgnoreNotFound:
		return runtime.SetZeroValue(out)
	}
	return storage.NewKeyNotFoundError(key, 0)
}

// checkMinimum returns an error if the wanted resourceVersion is in the future.
func (s *Storage) checkMinimum(wanted string, revision uint64) error {
	if wanted == "" {
		return nil
	}
	minimum, err := s.versioner.ParseResourceVersion(wanted)
	if err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("invalid resource version: %v", err))
	}
	if minimum > revision {
		return storage.NewTooLargeResourceVersionError(minimum, revision, 0)
	}
	return nil
}

// Assign copies an object into out.
func Assign(out, object runtime.Object) error {
	to, err := conversion.EnforcePtr(out)
	if err != nil {
		return fmt.Errorf("copy an object: %w", err)
	}
	from := reflect.ValueOf(object.DeepCopyObject()).Elem()
	if to.Type() != from.Type() {
		return fmt.Errorf("copy a %s to a %s", from.Type(), to.Type())
	}
	to.Set(from)
	return nil
}

// GetList implements storage.Interface. The items share their maps, slices and pointers with the
// stored objects, like those of the library's watch cache.
func (s *Storage) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	prefix, err := storage.PrepareKey(s.prefix, key, opts.Recursive)
	if err != nil {
		return err
	}
	pointer, err := meta.GetItemsPtr(list)
	if err != nil {
		return err
	}
	items, err := conversion.EnforcePtr(pointer)
	if err != nil || items.Kind() != reflect.Slice {
		return fmt.Errorf("list %s: the items of a %T are not a slice: %w", key, list, err)
	}
	at, start, err := storage.ValidateListOptions(prefix, s.versioner, opts)
	if err != nil {
		return err
	}
	if start == "" {
		start = prefix
	}
	objects, revision, err := s.objectsAt(at, start, prefix, opts.Predicate.Continue != "")
	if err != nil {
		return err
	}
	if at <= 0 {
		if err := s.checkMinimum(opts.ResourceVersion, revision); err != nil {
			return err
		}
	}
	return s.fill(ctx, list, items, objects, page{prefix: prefix, start: start, revision: revision, opts: opts})
}

// objectsAt returns the objects as they were at a revision, and the revision. A revision of 0 or
// less means the current one.
func (s *Storage) objectsAt(at int64, start, prefix string, paging bool) (*btree.BTree[item], uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	objects := s.objects.Clone()
	if at <= 0 {
		return objects, s.revision, nil
	}
	revision := uint64(at)
	switch {
	case revision > s.revision:
		return nil, 0, storage.NewTooLargeResourceVersionError(revision, s.revision, 0)
	case revision < s.oldest && paging:
		return nil, 0, expiredPage(start, prefix)
	case revision < s.oldest:
		return nil, 0, apierrors.NewResourceExpired(expired)
	}
	for _, c := range slices.Backward(s.history) {
		if c.revision <= revision {
			break
		}
		if c.before == nil {
			objects.Delete(item{key: c.key})
		} else {
			objects.ReplaceOrInsert(item{key: c.key, object: c.before})
		}
	}
	return objects, revision, nil
}

// expiredPage returns a 410 with a token that continues the list with the current objects.
func expiredPage(start, prefix string) error {
	token, err := storage.EncodeContinue(start, prefix, -1)
	if err != nil {
		return apierrors.NewResourceExpired(expired)
	}
	status := apierrors.NewResourceExpired(inconsistentContinue)
	status.ErrStatus.Continue = token
	return status
}

// page is the part of a list that a request wants.
type page struct {
	prefix, start string
	revision      uint64
	opts          storage.ListOptions
}

// fill adds the selected objects of a page to a list.
func (s *Storage) fill(ctx context.Context, list runtime.Object, items reflect.Value, objects *btree.BTree[item],
	p page) error {
	limit, last, left := p.opts.Predicate.Limit, "", int64(0)
	var failed error
	objects.AscendGreaterOrEqual(item{key: p.start}, func(i item) bool {
		if !p.contains(i.key) {
			return false
		}
		if !visible(ctx, i.object) {
			return true // The token must not name it.
		}
		if left > 0 || limit > 0 && int64(items.Len()) >= limit {
			left++
			return p.opts.Predicate.Empty() // Only then the number of the others is known.
		}
		last = i.key
		if matches, err := p.opts.Predicate.Matches(i.object); err != nil || !matches {
			failed = err
			return err == nil
		}
		items.Set(reflect.Append(items, reflect.ValueOf(i.object).Elem()))
		return true
	})
	if failed != nil {
		return failed
	}
	if items.IsNil() {
		items.Set(reflect.MakeSlice(items.Type(), 0, 0))
	}
	token, remaining, err := storage.PrepareContinueToken(last, p.prefix, int64(p.revision), //nolint:gosec // < 2^63
		int64(items.Len())+left, left > 0, p.opts)
	if err != nil {
		return err
	}
	return s.versioner.UpdateList(list, p.revision, token, remaining)
}

// contains returns whether a key belongs to the list.
func (p page) contains(key string) bool {
	if p.opts.Recursive {
		return strings.HasPrefix(key, p.prefix)
	}
	return key == p.prefix
}

// Delete implements storage.Interface. It ignores the suggested object, since reading costs
// nothing.
func (s *Storage) Delete(ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, _ runtime.Object, _ storage.DeleteOptions) error {
	key, err := storage.PrepareKey(s.prefix, key, false)
	if err != nil {
		return err
	}
	for {
		found := s.get(key)
		if found.object == nil {
			return storage.NewKeyNotFoundError(key, 0)
		}
		current := found.object.DeepCopyObject()
		if preconditions != nil {
			if err := preconditions.Check(key, current); err != nil {
				return err
			}
		}
		if err := validate(ctx, current); err != nil {
			return err
		}
		if deleted, err := s.remove(found); err != nil {
			return err
		} else if deleted != nil {
			return Assign(out, deleted)
		}
	}
}

// remove deletes an object and returns its last state, or nil if it changed meanwhile.
func (s *Storage) remove(found item) (runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now, ok := s.objects.Get(found); !ok || now.revision != found.revision {
		return nil, nil //nolint:nilnil // the caller tries again
	}
	deleted := found.object.DeepCopyObject()
	if err := s.versioner.UpdateObject(deleted, s.revision+s.step); err != nil {
		return nil, fmt.Errorf("set the resourceVersion of %s: %w", found.key, err)
	}
	s.forget(found)
	return deleted, nil
}

// GuaranteedUpdate implements storage.Interface. It ignores the suggested object, since reading
// costs nothing.
func (s *Storage) GuaranteedUpdate(_ context.Context, key string, out runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, update storage.UpdateFunc, _ runtime.Object) error {
	key, err := storage.PrepareKey(s.prefix, key, false)
	if err != nil {
		return err
	}
	for {
		found := s.get(key)
		current := reflect.New(reflect.TypeOf(out).Elem()).Interface().(runtime.Object)
		if found.object != nil {
			current = found.object.DeepCopyObject()
		} else if !ignoreNotFound {
			return storage.NewKeyNotFoundError(key, 0)
		}
		if err := preconditions.Check(key, current); err != nil {
			return err
		}
		updated, _, err := update(current, storage.ResponseMeta{ResourceVersion: found.revision})
		if err != nil {
			return err
		}
		if stored, err := s.replace(found, key, updated); err != nil {
			return err
		} else if stored != nil {
			return Assign(out, stored)
		}
	}
}

// replace stores an object and returns it, or nil if the stored one changed meanwhile. It stores
// nothing if the objects are equal.
func (s *Storage) replace(found item, key string, updated runtime.Object) (runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now, _ := s.objects.Get(item{key: key}); now.revision != found.revision {
		return nil, nil //nolint:nilnil // the caller tries again
	}
	if found.object != nil && s.equal(found, updated) {
		return found.object, nil
	}
	return s.put(key, found.object, updated)
}

// equal compares a stored object with another one, without their resourceVersions.
func (s *Storage) equal(found item, updated runtime.Object) bool {
	copied := reflect.New(reflect.TypeOf(updated).Elem())
	copied.Elem().Set(reflect.ValueOf(updated).Elem())
	same := copied.Interface().(runtime.Object) //nolint:forcetypeassert // like updated
	if s.versioner.PrepareObjectForStorage(same) != nil || s.versioner.UpdateObject(same, found.revision) != nil {
		return false
	}
	// The decoder sets kind and apiVersion of what a client sent.
	same.GetObjectKind().SetGroupVersionKind(found.object.GetObjectKind().GroupVersionKind())
	// Most objects of a poll have not changed, and reflect.DeepEqual is faster for them.
	return reflect.DeepEqual(found.object, same) || apiequality.Semantic.DeepEqual(found.object, same)
}

// Stats implements storage.Interface.
func (s *Storage) Stats(context.Context) (storage.Stats, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return storage.Stats{ObjectCount: int64(s.objects.Len())}, nil
}

// ReadinessCheck implements storage.Interface.
func (s *Storage) ReadinessCheck() error { return nil }

// GetCurrentResourceVersion implements storage.Interface.
func (s *Storage) GetCurrentResourceVersion(context.Context) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.revision, nil
}

// RequestWatchProgress implements storage.Interface: watches with progress send a bookmark.
func (s *Storage) RequestWatchProgress(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.progress)
	s.progress = make(chan struct{})
	return nil
}

// EnableResourceSizeEstimation implements storage.Interface. Sizes are not known.
func (s *Storage) EnableResourceSizeEstimation(storage.KeysFunc) error { return nil }

// CompactRevision implements storage.Interface.
func (s *Storage) CompactRevision() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int64(s.oldest) //nolint:gosec // < 2^63
}
