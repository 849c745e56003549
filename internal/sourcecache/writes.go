// SPDX-License-Identifier: Apache-2.0

package sourcecache

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"

	"example.com/extension-apiserver/internal/memorystorage"
)

// Create implements storage.Interface.
func (s *served) Create(ctx context.Context, key string, obj, out runtime.Object, _ uint64) error {
	if err := s.admit(ctx, 0); err != nil {
		return err
	}
	if version, err := s.Versioner().ObjectResourceVersion(obj); err == nil && version != 0 {
		return storage.ErrResourceVersionSetOnCreate
	}
	defer s.lock(key)()
	return s.create(ctx, key, obj, out)
}

// lock serializes the writes of an object, so that the copy gets the last result of the source.
func (s *served) lock(key string) (unlock func()) {
	s.cache.writes.LockKey(key)
	return func() { _ = s.cache.writes.UnlockKey(key) } // it is locked
}

// create is Create with the lock.
func (s *served) create(ctx context.Context, key string, obj, out runtime.Object) error {
	if s.cache.Create == nil {
		return s.unsupported("create")
	}
	if s.cache.memory.Has(key) {
		return storage.NewKeyExistsError(key, 0)
	}
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	if len(accessor.GetFinalizers()) > 0 && !s.cache.KeepsMetadata {
		return s.noFinalizers()
	}
	given := obj.DeepCopyObject()
	if accessor, err = meta.Accessor(given); err != nil {
		return err
	}
	// Until the source returns another one, the UID is derived, as in the copies of other replicas.
	accessor.SetUID("")
	if err := s.reserve(key, given); err != nil {
		return err
	}
	created, err := s.call("create", func() (runtime.Object, error) { return s.cache.Create(ctx, given) })
	if err != nil {
		return err
	}
	return s.store(ctx, key, created, out)
}

// GuaranteedUpdate implements storage.Interface. If the source may have another object than the copy,
// it reads the source again, and repeats the update once.
func (s *served) GuaranteedUpdate(ctx context.Context, key string, out runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, update storage.UpdateFunc, _ runtime.Object) error {
	if err := s.admit(ctx, 0); err != nil {
		return err
	}
	called := time.Now()
	err := s.updateOnce(ctx, key, out, ignoreNotFound, preconditions, update, called)
	if isStale(err) {
		if refreshErr := s.cache.refresh(ctx, called, false); refreshErr != nil {
			return conflictOr(err, refreshErr)
		}
		err = s.updateOnce(ctx, key, out, ignoreNotFound, preconditions, update, time.Time{})
	}
	return conflictOr(err, err)
}

// conflictOr returns the conflict that err is, or another error.
func conflictOr(err, other error) error {
	if conflict, ok := errors.AsType[sourceConflict](err); ok {
		return conflict.error
	}
	return other
}

// sourceConflict is a conflict at the source: it has another object than the copy.
type sourceConflict struct{ error }

// errUnchanged is returned for an update that changes nothing in a copy that may be old.
var errUnchanged = errors.New("the update changes nothing in the copy")

// isStale returns whether the source may have another object than the copy.
func isStale(err error) bool {
	_, conflict := errors.AsType[sourceConflict](err)
	return conflict || errors.Is(err, errUnchanged) || storage.IsNotFound(err) || apierrors.IsNotFound(err)
}

// updateOnce is GuaranteedUpdate without repetition. An update that changes nothing returns
// errUnchanged if the copy does not have all changes before since.
func (s *served) updateOnce(ctx context.Context, key string, out runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, update storage.UpdateFunc, since time.Time) error {
	defer s.lock(key)()
	current := out.DeepCopyObject()
	if err := s.cache.memory.Get(s.filter(ctx), key, storage.GetOptions{IgnoreNotFound: ignoreNotFound},
		current); err != nil {
		return err
	}
	if err := preconditions.Check(key, current); err != nil {
		return err
	}
	version, err := s.Versioner().ObjectResourceVersion(current)
	if err != nil {
		return err
	}
	updated, _, err := update(current.DeepCopyObject(), storage.ResponseMeta{ResourceVersion: version})
	if err != nil {
		return err
	}
	if version == 0 { // the object does not exist, or the user may not see it
		if err = s.create(ctx, key, updated, out); apierrors.IsAlreadyExists(err) {
			return sourceConflict{err}
		}
		return err
	}
	if s.cache.Update == nil {
		return s.unsupported("update")
	}
	if unchanged, err := s.unchanged(key, updated); err != nil {
		return err
	} else if unchanged && !s.cache.includes(since) {
		return errUnchanged
	} else if unchanged {
		return s.cache.memory.Get(s.filter(ctx), key, storage.GetOptions{}, out)
	}
	if changed, err := finalizersChanged(current, updated); err != nil {
		return err
	} else if changed && !s.cache.KeepsMetadata {
		return s.noFinalizers()
	}
	if err := s.reserve(key, updated); err != nil {
		return err
	}
	stored, err := s.call("update", func() (runtime.Object, error) {
		return s.cache.Update(ctx, updated.DeepCopyObject(), current)
	})
	if apierrors.IsConflict(err) {
		return sourceConflict{err}
	}
	if err != nil {
		return err
	}
	if err := s.store(ctx, key, stored, out); err != nil {
		return err
	}
	return s.checkVersion(key, current, out)
}

// checkVersion returns an error if an update has changed an object, but not its version: then the
// updates of two replicas could undo one another.
func (s *served) checkVersion(key string, before, after runtime.Object) error {
	old, err := meta.Accessor(before)
	if err != nil {
		return err
	}
	stored, err := meta.Accessor(after)
	if err != nil {
		return err
	}
	if s.cache.Version == nil || old.GetResourceVersion() == stored.GetResourceVersion() {
		return nil // the source has changed nothing
	}
	if was, is := s.cache.Version(before), s.cache.Version(after); is == "" || is == was {
		return apierrors.NewInternalError(fmt.Errorf("update %s at the source: the version of the object was %q, and is "+
			"%q after the update", key, was, is))
	}
	return nil
}

// unchanged returns whether an update changes nothing that the source stores.
func (s *served) unchanged(key string, updated runtime.Object) (bool, error) {
	if !s.cache.KeepsMetadata {
		updated = updated.DeepCopyObject()
		accessor, err := meta.Accessor(updated)
		if err != nil {
			return false, err
		}
		accessor.SetManagedFields(nil)
	}
	return s.cache.memory.Equal(key, updated), nil
}

// finalizersChanged returns whether an update changes the finalizers or begins a deletion that waits
// for them.
func finalizersChanged(current, updated runtime.Object) (bool, error) {
	before, err := meta.Accessor(current)
	if err != nil {
		return false, err
	}
	after, err := meta.Accessor(updated)
	if err != nil {
		return false, err
	}
	return !slices.Equal(before.GetFinalizers(), after.GetFinalizers()) ||
		(before.GetDeletionTimestamp() == nil) != (after.GetDeletionTimestamp() == nil), nil
}

func (s *served) noFinalizers() error {
	return apierrors.NewBadRequest(fmt.Sprintf("write %s: the source does not store finalizers", s.cache.Resource))
}

// reserve returns an error if the copy has no space for an object. It is called before the source
// stores the object.
func (s *served) reserve(key string, obj runtime.Object) error {
	size := SizeOf(obj)
	s.cache.mu.Lock()
	defer s.cache.mu.Unlock()
	if !s.cache.fits(key, size) {
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("all objects of %s have more than %d MiB, which is "+
			"the limit", s.cache.Resource, s.cache.MaxBytes>>20))
	}
	if !s.cache.churn.AllowN(time.Now(), int(size)) {
		return apierrors.NewTooManyRequests(fmt.Sprintf("%s change too fast", s.cache.Resource), 1)
	}
	return nil
}

// call calls a function of the source. If it fails, the source may have another object than the copy.
func (s *served) call(verb string, function func() (runtime.Object, error)) (obj runtime.Object, err error) {
	func() {
		defer contain(s.cache.Resource, &err)
		obj, err = function()
	}()
	if err == nil {
		return obj, nil
	}
	s.cache.requestPoll()
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return nil, &apierrors.StatusError{ErrStatus: status.Status()} // the library does not unwrap errors
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return nil, apierrors.NewTimeoutError(fmt.Sprintf("%s %s: the source did not confirm the write, which may have "+
			"been done: %v", verb, s.cache.Resource, err), 0)
	}
	return nil, apierrors.NewInternalError(fmt.Errorf("%s %s at the source: %w", verb, s.cache.Resource, err))
}

// Delete implements storage.Interface. After a conflict at the source, it reads the source again, and
// repeats the deletion once. The conflict remains if the object now has other finalizers, for which
// the library must begin the deletion again.
func (s *served) Delete(ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, _ runtime.Object, _ storage.DeleteOptions) error {
	if s.cache.Delete == nil {
		return s.unsupported("delete")
	}
	if err := s.admit(ctx, 0); err != nil {
		return err
	}
	called := time.Now()
	current, err := s.deleteOnce(ctx, key, out, preconditions, validate)
	if first := err; isStale(err) {
		if refreshErr := s.cache.refresh(ctx, called, false); refreshErr != nil {
			return conflictOr(err, refreshErr)
		}
		_, err = s.deleteOnce(ctx, key, out, preconditions, func(ctx context.Context, obj runtime.Object) error {
			if current == nil {
				return validate(ctx, obj)
			}
			if changed, err := finalizersChanged(current, obj); changed || err != nil {
				return first
			}
			return validate(ctx, obj)
		})
	}
	return conflictOr(err, err)
}

// deleteOnce is Delete without repetition. It returns the object of the copy.
func (s *served) deleteOnce(ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc) (runtime.Object, error) {
	defer s.lock(key)()
	current := out.DeepCopyObject()
	if err := s.cache.memory.Get(s.filter(ctx), key, storage.GetOptions{}, current); err != nil {
		return nil, err
	}
	if err := preconditions.Check(key, current); err != nil {
		return nil, err
	}
	if err := validate(ctx, current); err != nil {
		return nil, err
	}
	_, err := s.call("delete", func() (runtime.Object, error) {
		return nil, s.cache.Delete(ctx, current.DeepCopyObject())
	})
	if apierrors.IsConflict(err) {
		return current, sourceConflict{err}
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	s.cache.mu.Lock()
	defer s.cache.mu.Unlock()
	s.cache.wrote(key)
	deleted := current
	if last := s.cache.remove(key); last != nil {
		deleted = last
	}
	return current, memorystorage.Assign(out, deleted)
}

// store adds an object that the source returned to the copy, and copies it into out.
func (s *served) store(ctx context.Context, key string, stored, out runtime.Object) error {
	preparedKey, object, err := s.cache.prepare(stored)
	if err == nil && preparedKey != key {
		err = fmt.Errorf("it has the key %s", preparedKey)
	}
	if err == nil {
		err = s.cache.accept(ctx, key, object, true)
	}
	if err == nil {
		s.cache.mu.Lock()
		s.cache.wrote(key)
		err = s.cache.put(key, object, SizeOf(object))
		s.cache.mu.Unlock()
	}
	if err != nil {
		s.cache.requestPoll()
		return apierrors.NewInternalError(fmt.Errorf("read %s that the source has stored: %w", key, err))
	}
	return s.cache.memory.Get(ctx, key, storage.GetOptions{}, out)
}

func (s *served) unsupported(verb string) error {
	return apierrors.NewMethodNotSupported(s.cache.Resource, verb)
}
