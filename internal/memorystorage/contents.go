// SPDX-License-Identifier: Apache-2.0

package memorystorage

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
)

// The methods in this file change the storage without the checks of storage.Interface, for an owner
// that has the objects.

// Has returns whether an object is stored.
func (s *Storage) Has(key string) bool { return s.get(key).object != nil }

// Equal returns whether an object is stored with this content.
func (s *Storage) Equal(key string, object runtime.Object) bool {
	found := s.get(key)
	return found.object != nil && s.equal(found, object)
}

// Replace stores the objects by key, and removes those whose key it may not keep.
func (s *Storage) Replace(objects map[string]runtime.Object, keep func(key string) bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(objects)) {
		found, _ := s.objects.Get(item{key: key})
		if found.object == nil || !s.equal(found, objects[key]) {
			if _, err := s.put(key, found.object, objects[key]); err != nil {
				return err
			}
		}
	}
	var gone []item
	s.objects.Ascend(func(i item) bool {
		if !keep(i.key) {
			gone = append(gone, i)
		}
		return true
	})
	for _, i := range gone {
		s.forget(i)
	}
	return nil
}

// Put stores an object, unless it is stored with this content.
func (s *Storage) Put(key string, object runtime.Object) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, _ := s.objects.Get(item{key: key})
	if found.object != nil && s.equal(found, object) {
		return nil
	}
	_, err := s.put(key, found.object, object)
	return err
}

// Remove removes an object, and returns it with the resourceVersion of its deletion, or nil if it is
// not stored.
func (s *Storage) Remove(key string) runtime.Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, ok := s.objects.Get(item{key: key})
	if !ok {
		return nil
	}
	s.forget(found)
	deleted := found.object.DeepCopyObject()
	if s.versioner.UpdateObject(deleted, s.revision) != nil {
		return nil
	}
	return deleted
}

// forget removes an object. The caller holds the lock.
func (s *Storage) forget(i item) {
	s.revision += s.step
	s.objects.Delete(i)
	s.record(change{revision: s.revision, key: i.key, before: i.object})
}
