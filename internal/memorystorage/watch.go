// SPDX-License-Identifier: Apache-2.0

package memorystorage

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"
	"k8s.io/utils/third_party/forked/golang/btree"
)

// watchBuffer is the number of events that wait for the reader of a watch.
const watchBuffer = 100

// Watch implements storage.Interface. A watch whose reader is so slow that the history no longer
// has its next change ends with 410.
func (s *Storage) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	return s.watch(ctx, key, opts, runtime.Object.DeepCopyObject)
}

// ForCacher returns a storage.Interface whose watches send the stored objects instead of copies.
// The reader must not change them.
func (s *Storage) ForCacher() storage.Interface { return forCacher{s} }

type forCacher struct{ *Storage }

// Watch implements storage.Interface.
func (s forCacher) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	return s.watch(ctx, key, opts, func(object runtime.Object) runtime.Object { return object })
}

func (s *Storage) watch(ctx context.Context, key string, opts storage.ListOptions,
	clone func(runtime.Object) runtime.Object) (watch.Interface, error) {
	prefix, err := storage.PrepareKey(s.prefix, key, opts.Recursive)
	if err != nil {
		return nil, err
	}
	revision, err := s.versioner.ParseResourceVersion(opts.ResourceVersion)
	if err != nil {
		return nil, err
	}
	objects, now, err := s.objectsAt(0, "", "", false) // here, since changes may precede run
	if err != nil {
		return nil, err
	}
	wanted := opts.SendInitialEvents
	if initial := wanted != nil && *wanted || wanted == nil && revision == 0; !initial {
		objects = nil
	}
	if revision == 0 {
		revision = now
	}
	w := &watcher{storage: s, clone: clone, prefix: prefix, opts: opts, revision: revision,
		result: make(chan watch.Event, watchBuffer)}
	w.ctx, w.cancel = context.WithCancel(ctx)
	go w.run(objects, now)
	return w, nil
}

// watcher is a watch.
type watcher struct {
	storage  *Storage
	clone    func(runtime.Object) runtime.Object
	prefix   string
	opts     storage.ListOptions
	revision uint64 // of the last change that was sent
	progress bool   // a bookmark follows the changes that are not sent yet
	result   chan watch.Event
	ctx      context.Context //nolint:containedctx // of the watch
	cancel   context.CancelFunc
}

// ResultChan implements watch.Interface.
func (w *watcher) ResultChan() <-chan watch.Event { return w.result }

// Stop implements watch.Interface.
func (w *watcher) Stop() { w.cancel() }

// run sends the initial objects if they are not nil, which are the state at the revision now, and then
// the changes.
func (w *watcher) run(initial *btree.BTree[item], now uint64) {
	defer close(w.result)
	defer w.cancel()
	err := w.begin(initial, now)
	for err == nil {
		err = w.next()
	}
	if w.ctx.Err() != nil {
		return
	}
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok {
		status = apierrors.NewInternalError(err)
	}
	_ = w.send(watch.Event{Type: watch.Error, Object: &status.ErrStatus})
}

// begin sends the existing objects, if the watch wants them, or sets where it starts.
func (w *watcher) begin(initial *btree.BTree[item], now uint64) (err error) {
	switch {
	case initial == nil:
	case w.revision > now:
		return storage.NewTooLargeResourceVersionError(w.revision, now, 1)
	default:
		w.revision = now
		p := page{prefix: w.prefix, opts: w.opts}
		initial.AscendGreaterOrEqual(item{key: w.prefix}, func(i item) bool {
			if !p.contains(i.key) {
				return false
			}
			err = w.sendChange(change{revision: i.revision, key: i.key, after: i.object})
			return err == nil
		})
	}
	if err == nil && w.opts.SendInitialEvents != nil && *w.opts.SendInitialEvents &&
		w.opts.Predicate.AllowWatchBookmarks {
		err = w.bookmark(true)
	}
	return err
}

// next sends the next changes, or waits for one.
func (w *watcher) next() error {
	changes, now, changed, progress, ok := w.storage.after(w.revision)
	if !ok {
		return apierrors.NewResourceExpired(expiredWatch)
	}
	p := page{prefix: w.prefix, opts: w.opts}
	for _, c := range changes {
		if p.contains(c.key) {
			if err := w.sendChange(c); err != nil {
				return err
			}
		}
	}
	if len(changes) == 0 && now > w.revision { // the revision advanced
		w.progress = w.opts.ProgressNotify
	}
	w.revision = now
	if len(changes) < batch {
		utilflowcontrol.WatchInitialized(w.ctx) // only the first call has an effect
	}
	if w.progress && len(changes) < batch {
		w.progress = false
		if err := w.bookmark(false); err != nil {
			return err
		}
	}
	select {
	case <-w.ctx.Done():
		return w.ctx.Err()
	case <-changed:
		return nil
	case <-progress:
		w.progress = w.opts.ProgressNotify
		return nil
	}
}

// sendChange sends a change, if the watch selects the object before or after it.
func (w *watcher) sendChange(c change) error {
	before, err := w.matches(c.before)
	if err != nil {
		return err
	}
	after, err := w.matches(c.after)
	if err != nil {
		return err
	}
	event := watch.Event{}
	switch {
	case after && before:
		event = watch.Event{Type: watch.Modified, Object: w.clone(c.after)}
	case after:
		event = watch.Event{Type: watch.Added, Object: w.clone(c.after)}
	case before:
		event = watch.Event{Type: watch.Deleted, Object: c.before.DeepCopyObject()}
		if err := w.storage.versioner.UpdateObject(event.Object, c.revision); err != nil {
			return fmt.Errorf("set the resourceVersion of %s: %w", c.key, err)
		}
	default:
		return nil
	}
	return w.send(event)
}

func (w *watcher) matches(object runtime.Object) (bool, error) {
	if object == nil || !visible(w.ctx, object) {
		return false, nil
	}
	if w.opts.Predicate.Empty() {
		return true, nil
	}
	return w.opts.Predicate.Matches(object)
}

// bookmark tells the reader how far the watch is.
func (w *watcher) bookmark(endOfInitial bool) error {
	object := w.storage.newObject()
	if err := w.storage.versioner.UpdateObject(object, w.revision); err != nil {
		return err
	}
	if endOfInitial {
		if err := storage.AnnotateInitialEventsEndBookmark(object); err != nil {
			return err
		}
	}
	return w.send(watch.Event{Type: watch.Bookmark, Object: object})
}

func (w *watcher) send(event watch.Event) error {
	select {
	case w.result <- event:
		return nil
	case <-w.ctx.Done():
		return w.ctx.Err()
	}
}
